"""Give tests of workers servers in memory, in virtual time."""

import pytest
from workers_support import MemoryServers

from rink.testing.memory.fake_redis import MemoryRedis
from rink.testing.virtual import virtual_time


@pytest.fixture
def rink_redis():
    return MemoryRedis()


@pytest.fixture
def servers(rink_redis):
    with virtual_time() as time:
        yield MemoryServers(time, rink_redis)
