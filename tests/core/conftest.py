"""Worlds to begin a scenario in."""

import pytest
from world import World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def pair(world):
    """Two settled members, a coordinates; nobody waits for anything."""
    world.add("a", rebalance_delay=0.0)
    world.add("b", rebalance_delay=0.0)
    world.sleep(1.0)
    assert world.ranks == ["a", "b"]
    return world
