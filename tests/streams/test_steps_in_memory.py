"""Hold the Redis in memory to what a real one does, step by step."""

import pytest
from script_arguments_contract import *  # noqa: F403
from steps_contract import *  # noqa: F403

from rink.testing.memory.memory_redis import MemoryRedis


@pytest.fixture
def rink_redis():
    return MemoryRedis()
