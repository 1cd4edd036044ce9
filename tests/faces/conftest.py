"""Both faces, and a world for members on an in-memory etcd."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("faces_support")

from faces_support import AioFace, BlockingFace, World  # noqa: E402 - needs the path above


@pytest.fixture(params=["blocking", "aio"])
def face(request):
    """One of the two faces."""
    made = BlockingFace() if request.param == "blocking" else AioFace()
    yield made
    made.close()


@pytest.fixture
def world(face):
    """Members of one face, closed in the end."""
    made = World(face)
    yield made
    made.close()


@pytest.fixture
def blocking():
    """Members of the blocking face."""
    made = World(BlockingFace())
    yield made
    made.close()


@pytest.fixture
def apart():
    """Runs something on a thread of its own: a future."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit
