"""Read a group from etcd once, without being a member."""

from __future__ import annotations

from rink.core.keys import Keys
from rink.core.view import View
from rink.engine.group_watch import read_entry
from rink.errors import StateError
from rink.etcd.api import Etcd
from rink.etcd.client import Client
from rink.inspect.group_status import GroupStatus, status_of_view


def read_group(etcd: Etcd, keys: Keys) -> View:
    """Return a group's keys as they are now."""
    answer = etcd.range(keys.root, keys.end)
    return View.listed(answer.header.revision, [read_entry(keys, kv) for kv in answer.kvs])


def read_status(etcd: Etcd, prefix: str, group: str) -> GroupStatus:
    """Return a group's status as it is now; without keys, it is empty."""
    return status_of_view(read_group(etcd, Keys.of(prefix, group)), group)


def fail_refused(etcd: Etcd) -> None:
    """Make requests fail at once if every endpoint refuses the connection.

    Commands use this, because their user waits for the answer, and can start etcd.
    """
    if isinstance(etcd, Client):
        etcd.fail_refused()


def unknown_group(group: str, keys: Keys) -> StateError:
    """Return the error for a group that has no keys."""
    root = keys.root.decode()
    return StateError(f"there is no group {group!r}: etcd has no key under {root!r}", key=root)
