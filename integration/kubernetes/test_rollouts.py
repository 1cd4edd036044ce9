"""Test that each row of the table keeps its limits.

The controllers of Kubernetes are real. The rows run several at a time, in a pool of the whole run.
Each test waits for its own.
"""

import pytest
from lanes import Lanes
from rollouts import NoNetworkError
from scenarios import BY_NAME

pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]

LANES = 4


@pytest.fixture(scope="module")
def verdicts(kube, request):
    """Return the verdicts on all chosen rows, as they come."""
    chosen = [
        item.callspec.params["scenario"]
        for item in request.session.items
        if getattr(item, "originalname", "") == test_row_keeps_its_limits.__name__
    ]
    with Lanes(kube, LANES) as lanes:
        yield lanes.submit(chosen)


@pytest.mark.parametrize("scenario", BY_NAME.values(), ids=lambda scenario: scenario.name)
def test_row_keeps_its_limits(verdicts, scenario):
    try:
        verdict = verdicts[scenario.name].result()
    except NoNetworkError as error:
        pytest.skip(str(error))
    assert list(verdict.misses) == []
