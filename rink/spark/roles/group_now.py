"""A group as it stands, read from etcd once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rink.core.keys import Keys, check_name
from rink.spark.roles.version_ranks import Standing

if TYPE_CHECKING:
    from rink.session import BaseSession


def standing(session: BaseSession, group: str) -> Standing:
    """Return a group's newest version, and who has come or gone since: what `plan` begins with.

    Args:
        session: Of Rink, on either face; nothing is joined.
        group: Its name.

    Raises:
        StateError: There is no such group, or it has no version yet, or one that cannot be read.
        EtcdError: It could not be read.
    """
    # Executors import this room as well, and speak to no etcd.
    from rink.inspect.read_group import read_group, unknown_group

    keys = Keys.of(session.prefix, check_name("group", group))
    view = read_group(session.etcd, keys)
    if not (view.versions or view.members):
        raise unknown_group(group, keys)
    return Standing.of(view, group)
