"""Give tests of workers servers in memory, in virtual time."""

import pytest
from workers_support import MemoryServers

from rink.testing.memory.memory_redis import MemoryRedis
from rink.testing.virtual import virtual_time


@pytest.fixture
def servers():
    with virtual_time() as time:
        yield MemoryServers(time, MemoryRedis())
