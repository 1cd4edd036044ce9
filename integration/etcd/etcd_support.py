"""Share helpers with tests/etcd, and add those for killed servers."""

from __future__ import annotations

import time

from etcd_scripted import Seen, put

__all__ = ["Seen", "eventually", "put", "put_until_done"]


def put_until_done(client, key, value):
    """Write one key, with retries; return all revisions it may have got.

    A write without an answer may be applied later. So the same value is written again, and a reader
    can tell a repeated write from a lost one.
    """
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            return put(client, key, value, timeout=1.0)
        except Exception:
            time.sleep(0.05)
    raise AssertionError(f"{value!r} was never written")


def eventually(what, timeout=60.0):
    """Wait until `what()` is true."""
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)
