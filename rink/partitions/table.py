"""Show a topic as a table, with a row for each partition, lowest first."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rink.inspect.group_status import GroupStatus
from rink.inspect.standby import standbys
from rink.partitions.cursor import role_of
from rink.partitions.stored import Stored


@attrs.frozen
class PartitionRow:
    """Show one partition, with its owner, standby and committed offset.

    `owner` is None while nobody is ranked, and `standby` is None if there is no other member. The
    owner may still wait for an earlier holder to release the partition. `token` belongs to the last
    take; it is 0 before the first take.
    """

    partition: int
    owner: str | None
    standby: str | None
    offset: int
    token: int


def rows(
    status: GroupStatus, topic: str, partitions: int, values: Mapping[int, Stored]
) -> tuple[PartitionRow, ...]:
    """Return the rows of a topic; a partition without a value had no owner."""
    roles = [role_of(topic, number) for number in range(partitions)]
    standby_of = standbys(status, roles)
    nothing = Stored(0, 0, "", partitions)
    return tuple(
        PartitionRow(number, standby_of[role].owner, standby_of[role].next, at.offset, at.token)
        for number, role in enumerate(roles)
        for at in (values.get(number, nothing),)
    )
