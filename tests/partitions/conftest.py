"""Both faces, and a world for members, as the tests of the faces have them."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

FACES = Path(__file__).parents[1] / "faces"
sys.path[:0] = [str(Path(__file__).parent), str(FACES)]
pytest.register_assert_rewrite("partitions_support")

from faces_support import AioFace, BlockingFace  # noqa: E402 - needs the path above
from partitions_support import PartitionsWorld  # noqa: E402

from rink.testing.virtual import virtual_time  # noqa: E402


@pytest.fixture(params=["blocking", "aio"])
def face(request):
    """One of the two faces."""
    made = BlockingFace() if request.param == "blocking" else AioFace()
    yield made
    made.close()


@pytest.fixture
def world(face):
    """Members of one face on an etcd in memory, closed in the end."""
    made = PartitionsWorld(face)
    yield made
    made.close()


@pytest.fixture
def apart():
    """Runs something on a thread of its own: a future."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


@pytest.fixture
def time():
    """Virtual time."""
    with virtual_time() as made:
        made.workers = []
        yield made
        for worker in made.workers:
            worker.consumer.__exit__()
