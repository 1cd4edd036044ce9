"""Every interleaving of a few small worlds; `make worlds` goes through larger ones."""

import multiprocessing
import os

import pytest
from catalogue import BY_DEFAULT, DEEP
from exploring import explore


@pytest.fixture(scope="module")
def explored(request):
    """What becomes of each chosen world; all of them are gone through side by side."""
    params = (getattr(item, "callspec", None) for item in request.session.items)
    chosen = [one.params["spec"] for one in params if one and "spec" in one.params]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        yield {spec.name: pool.apply_async(explore, (spec,)) for spec in chosen}


@pytest.mark.parametrize("spec", BY_DEFAULT, ids=lambda spec: spec.name)
def test_no_interleaving_of_a_small_world_breaks_a_rule(spec, explored, tell):
    result = explored[spec.name].get()
    tell(result)
    assert not result.broken, "\n".join([result.broken, *result.trace])
    assert result.is_whole
    assert result.states > 1000


def test_every_world_has_a_name_of_its_own():
    names = [spec.name for spec in (*BY_DEFAULT, *DEEP)]
    assert len(set(names)) == len(names)
