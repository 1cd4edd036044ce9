"""How the tests of servers look at processes."""

from __future__ import annotations

import time
from pathlib import Path

# A node that starts again waits for one to two election timeouts before it leads.
QUICK = {"heartbeat_ms": 20, "election_ms": 200}


def wait_until(look, seconds=10.0):
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.02)


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone before, or while, it was read
        return False
    return state != "Z"
