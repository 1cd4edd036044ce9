"""Map errors of redis-py to errors of Rink.

The class says whether the same request may succeed later.
"""

from types import SimpleNamespace

import pytest
import redis
from redis import exceptions

from rink.errors import ConfigError
from rink.guards.guard_connection import connected
from rink.redis.error_map import explain
from rink.redis.errors import RedisError, RedisUnavailable
from rink.streams import App

PASSES = [
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "READONLY You can't write against a read only replica.",
    "MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.",
    "NOREPLICAS Not enough good replicas to write.",
]
STAYS = [
    "ERR unknown command 'X'",
    "BUSYKEY Target key name already exists.",
    "NOTBUSY No scripts in execution right now.",
]


COMMAND = (b"EVALSHA", b"ab\ncd", 1, b"{SHOWROOMS/WRONGTYPE}")
# Only the blocking pipeline: the pipelines on asyncio take errors as replies, see
# rink/redis/script_pipeline.py.
PIPELINES = [None, redis.client.Pipeline]


def raised(said, pipeline):
    """Return the error of redis-py for an error message of the server."""
    error = redis._parsers.BaseParser.parse_error(said)
    if pipeline:
        pipeline.annotate_exception(SimpleNamespace(), error, 2, COMMAND)
    return error


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("said", PASSES)
def test_what_passes_is_told_from_what_does_not_also_in_a_pipeline(said, pipeline):
    assert type(explain(raised(said, pipeline), "here")) is RedisUnavailable


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("said", STAYS)
def test_what_stays_is_no_pause(said, pipeline):
    assert type(explain(raised(said, pipeline), "here")) is RedisError


def test_word_in_the_midst_says_nothing():
    error = exceptions.ResponseError("ERR 'BUSY READONLY' is no number")
    assert type(explain(error, "here")) is RedisError


@pytest.mark.parametrize("use", [lambda url: App("a", redis=url).connections.connect(), connected])
def test_url_that_cannot_be_read_is_told_without_its_password(use):
    for url in ("redis://:secret/more@host:1", "redis://host/?password=secret&db=x"):
        with pytest.raises(ConfigError, match="redis cannot be used: redis-py cannot") as told:
            use(url)
        assert told.value.__cause__ is None
        assert "secret" not in str(told.value)
    with pytest.raises(ConfigError, match="redis='host:1' cannot be used: Redis URL must"):
        use("host:1")
