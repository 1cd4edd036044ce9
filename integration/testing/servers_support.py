"""What the tests of servers share."""

from __future__ import annotations

import contextlib
import time

import redis

# A node that starts again waits for one to two election timeouts before it leads.
QUICK = {"heartbeat_ms": 20, "election_ms": 200}


def wait_until(look, seconds=10.0):
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.02)


@contextlib.contextmanager
def client_of(url, **settings):
    """A client as users have it, one that does not try again."""
    settings = {"socket_timeout": 5.0, "decode_responses": True, "retry": None, **settings}
    with redis.Redis.from_url(url, **settings) as client:
        yield client
