"""Partitions of anything, shared out among a group; their offsets travel with them.

    import rink
    from rink.partitions import PartitionedConsumer

    with (
        rink.Rink(session, "billing", scheme="balanced:8") as r,
        PartitionedConsumer(r, "orders", partitions=8) as consumer,
    ):
        for change in consumer:
            if change.assigned:
                begin(change.partition, change.assignment.offset)
            else:
                consumer.commit(change.partition, finish(change.partition))
                change.assignment.release()

No broker is needed, and none is known here. `rink.partitions.aio` has the same names for asyncio.
What runs what: `stored` (the value in etcd), `cursor` (the transactions), `lanes` (the threads),
`face` and the two faces. Deliberately absent: fetching, and anything that works on a message.
"""

from rink.partitions.consumer import Assignment, PartitionedConsumer
from rink.partitions.face import PartitionChange
from rink.partitions.table import PartitionRow

__all__ = ["Assignment", "PartitionChange", "PartitionRow", "PartitionedConsumer"]
