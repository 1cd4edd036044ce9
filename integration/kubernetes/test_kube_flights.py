"""Test that a rolled flights example counts each flight once.

It is rolled once, under Kubernetes' default.
"""

import pytest
from flights_roll import carry_out
from rollouts import NoNetworkError

# The first one may have to build the control plane.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]


def test_flights_rolled_once_have_right_totals_and_one_move_each(kube):
    try:
        verdict = carry_out(kube)
    except NoNetworkError as error:
        pytest.skip(str(error))
    assert verdict.misses == ()
