"""Share out partitions of anything among a group, with their offsets.

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

This needs no broker. The application fetches and processes the messages. `rink.partitions.aio` has
the same names for asyncio. `stored` has the value in etcd, `cursor` the transactions,
`held_partitions` the threads, and `base_consumer` the common parts of both faces.
"""

from rink.partitions.base_consumer import PartitionChange
from rink.partitions.consumer import Assignment, PartitionedConsumer
from rink.partitions.table import PartitionRow

__all__ = ["Assignment", "PartitionChange", "PartitionRow", "PartitionedConsumer"]
