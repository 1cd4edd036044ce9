"""Share settings and helpers of the tests of servers."""

from __future__ import annotations

import contextlib
import time

import redis

# A restarted node leads after one to two election timeouts.
QUICK = {"heartbeat_ms": 20, "election_ms": 200}


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"the condition did not hold within {seconds:g} s"
        time.sleep(0.02)


@contextlib.contextmanager
def client_of(url, **settings):
    """Give a user's client, without retries."""
    settings = {"socket_timeout": 5.0, "decode_responses": True, "retry": None, **settings}
    with redis.Redis.from_url(url, **settings) as client:
        yield client
