"""A topic as a table: a row for each partition, lowest first."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rink.inspect.group_status import GroupStatus
from rink.inspect.standby import standbys
from rink.partitions.cursor import role_of
from rink.partitions.stored import Stored


@attrs.frozen
class PartitionRow:
    """One partition: whose it is, who would have it next, and up to where it is worked through.

    `owner` is None while nobody is ranked, and `standby` where nobody else is there; the owner may
    still wait for an earlier holder to let go. `token` is that of whoever took over last, 0 for
    nobody yet.
    """

    partition: int
    owner: str | None
    standby: str | None
    offset: int
    token: int


def rows(
    status: GroupStatus, topic: str, partitions: int, found: Mapping[int, Stored]
) -> tuple[PartitionRow, ...]:
    """Put the rows together.

    Args:
        status: of the group.
        topic: its name.
        partitions: how many it has.
        found: what lies under each partition that has been taken over before.
    """
    roles = [role_of(topic, number) for number in range(partitions)]
    who = standbys(status, roles)
    nothing = Stored(0, 0, "", partitions)
    return tuple(
        PartitionRow(number, who[role].owner, who[role].next, at.offset, at.token)
        for number, role in enumerate(roles)
        for at in (found.get(number, nothing),)
    )
