"""Provide both faces, and a world for members, as for the faces' tests."""

import sys
from pathlib import Path

import pytest

FACES = Path(__file__).parents[1] / "faces"
sys.path[:0] = [str(Path(__file__).parent), str(FACES)]
pytest.register_assert_rewrite("partitions_support")

from faces_fixtures import apart, face  # noqa: E402 - needs the path above
from partitions_support import PartitionsWorld  # noqa: E402

from rink.testing.virtual import virtual_time  # noqa: E402

__all__ = ["apart", "face"]  # fixtures


@pytest.fixture
def world(face):
    """Members of one face on an etcd in memory, closed in the end."""
    made = PartitionsWorld(face)
    yield made
    made.close()


@pytest.fixture
def time():
    """Virtual time."""
    with virtual_time() as made:
        made.workers = []
        yield made
        for worker in made.workers:
            worker.consumer.__exit__()
