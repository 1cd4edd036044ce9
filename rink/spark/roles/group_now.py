"""Read a group's current state from etcd, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rink.core.keys import Keys, check_name
from rink.spark.roles.version_ranks import Standing

if TYPE_CHECKING:
    from rink.session import BaseSession


def standing(session: BaseSession, group: str) -> Standing:
    """Return a group's newest version, and the later joiners and leavers.

    Pass the result to `plan`. The session, blocking or asyncio, joins no group.

    Raises:
        StateError: there is no such group, it has no version yet, or its version cannot be read.
        EtcdError: etcd could not be read.
    """
    # Executors import this package as well, but do not need etcd.
    from rink.inspect.read_group import read_group, unknown_group

    keys = Keys.of(session.prefix, check_name("group", group))
    view = read_group(session.etcd, keys)
    if not (view.versions or view.members):
        raise unknown_group(group, keys)
    return Standing.of(view, group)
