"""Both faces, and a world for members on an in-memory etcd."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from faces_fixtures import apart, face
from faces_support import BlockingFace, World

__all__ = ["apart", "face"]  # fixtures


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
