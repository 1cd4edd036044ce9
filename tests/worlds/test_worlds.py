"""Explore every interleaving of each world; the large worlds are deep."""

import pytest
from catalogue import BY_DEFAULT, DEEP
from exploring import explore

LARGE_WORLD_TIMEOUT_S = 3600  # "nobody lets go" takes eight minutes on a quiet core
LARGE = [pytest.mark.deep, pytest.mark.timeout(LARGE_WORLD_TIMEOUT_S)]


@pytest.mark.parametrize(
    "spec",
    [*BY_DEFAULT, *(pytest.param(spec, marks=LARGE) for spec in DEEP)],
    ids=lambda spec: spec.name,
)
def test_no_interleaving_of_a_small_world_breaks_a_rule(spec, record_property):
    result = explore(spec)
    record_property("world", [result.name, result.states, result.moves, result.seconds])
    assert not result.broken, "\n".join([result.broken, *result.trace])
    assert result.is_whole
    assert result.states > 1000


def test_every_world_has_a_name_of_its_own():
    names = [spec.name for spec in (*BY_DEFAULT, *DEEP)]
    assert len(set(names)) == len(names)
