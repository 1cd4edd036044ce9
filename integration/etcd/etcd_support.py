"""What these tests share with those of tests/etcd, and what only a server that is killed needs."""

from __future__ import annotations

import time

from etcd_scripted import Seen, put

__all__ = ["Seen", "eventually", "put", "put_until_done"]


def put_until_done(client, key, value):
    """Write one key through whatever happens, and return all revisions it may have got.

    A write without an answer may be applied later: it is repeated with the same value, so that a
    reader can tell the values apart from lost ones.
    """
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            return put(client, key, value, timeout=1.0)
        except Exception:
            time.sleep(0.05)
    raise AssertionError(f"{value!r} was never written")


def eventually(what, timeout=15.0):
    """Wait until `what()` is true."""
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)
