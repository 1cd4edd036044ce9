"""What the tests of servers share."""

from __future__ import annotations

import time

# A node that starts again waits for one to two election timeouts before it leads.
QUICK = {"heartbeat_ms": 20, "election_ms": 200}


def wait_until(look, seconds=10.0):
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.02)
