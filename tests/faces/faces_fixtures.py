"""Provide fixtures for suites on both faces, for a conftest to import."""

from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.register_assert_rewrite("faces_support")  # before whoever comes first imports it

from faces_support import AioFace, BlockingFace  # noqa: E402


@pytest.fixture(params=["blocking", "aio"])
def face(request):
    """One of the two faces."""
    made = BlockingFace() if request.param == "blocking" else AioFace()
    yield made
    made.close()


@pytest.fixture
def apart():
    """Runs something on a thread of its own: a future."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit
