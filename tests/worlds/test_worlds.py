"""Explore every interleaving of each world.

Most worlds with more than 20,000 states are deep tests.
"""

import pytest
from catalogue import BY_DEFAULT, DEEP
from exploring import explore

LARGE_WORLD_TIMEOUT_S = 3600  # "nobody lets go" takes eight minutes on a quiet core
LARGE = [pytest.mark.deep, pytest.mark.timeout(LARGE_WORLD_TIMEOUT_S)]
MEDIUM = {
    "a deadline and a late request",
    "a deadline is noticed",
    "a lease ends early",
    "a record is deleted",
    "a version is deleted",
    "an offer is taken",
    "an offer, and b joins",
    "an operator pins a role",
    "several shares stay behind",
    "somebody joins",
    "there and back",
}
"""They take 10 to 60 s each; mutants (`MUTANTS=--worlds`) are tried in them, too."""
SECONDS = [pytest.mark.deep, pytest.mark.medium]


@pytest.mark.parametrize(
    "spec",
    [
        *(pytest.param(spec, marks=SECONDS if spec.name in MEDIUM else ()) for spec in BY_DEFAULT),
        *(pytest.param(spec, marks=LARGE) for spec in DEEP),
    ],
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
    assert set(names) >= MEDIUM
