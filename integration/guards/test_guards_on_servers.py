"""Run contract and model on a real Redis, a real cluster and a PostgreSQL."""

import pytest
from guards_contract import *  # noqa: F403
from guards_model import machine_of
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

KINDS = [
    "redis",
    *(pytest.param(one, marks=pytest.mark.deep) for one in ("cluster", "slot")),
    "postgres",
]


@pytest.fixture(params=KINDS)
def world(request, clean):
    return clean(request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_no_interleaving_differs_from_the_model(kind, clean):
    bounds = settings(max_examples=15, stateful_step_count=15, deadline=None)
    run_state_machine_as_test(machine_of(lambda: clean(kind)), settings=bounds)
