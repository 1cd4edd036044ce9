"""Every interleaving of a few small worlds; `make worlds` goes through larger ones."""

import pytest
from catalogue import BY_DEFAULT, DEEP
from exploring import explore


@pytest.mark.parametrize("spec", BY_DEFAULT, ids=lambda spec: spec.name)
def test_no_interleaving_of_a_small_world_breaks_a_rule(spec, tell):
    result = explore(spec)
    tell(result)
    assert not result.broken, "\n".join([result.broken, *result.trace])
    assert result.is_whole
    assert result.states > 1000


def test_every_world_has_a_name_of_its_own():
    names = [spec.name for spec in (*BY_DEFAULT, *DEEP)]
    assert len(set(names)) == len(names)
