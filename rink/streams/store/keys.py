"""Redis keys. Every key of a partition has one hash tag, so one script may touch them all."""

from __future__ import annotations

import attrs

from rink.core.keys import check_name, encode
from rink.errors import ConfigError
from rink.redis.stored_format import FIELD, STREAM_PREFIX

OF_SPARK = "spark/"
"""What the name of a group begins with that is a query of Spark: it has no workers, and its checkpoint has its offsets."""


def check_processor_name(name: str) -> str:
    """Return a processor's name, or raise a ConfigError if it is reserved."""
    if name == FIELD:
        raise ConfigError(
            f"a processor cannot be named {name!r}, since Rink has a field of this name in Redis beside those of "
            "processors: give it another name"
        )
    return name


@attrs.frozen
class Names:
    """The keys of one stream of one app.

    Names are percent-encoded, so none holds a brace, a colon or a slash of ours, and no two names
    share a key. The part in braces decides the slot on a Redis Cluster.

    Attributes:
        root: app and stream.
        letters_of: the processor whose dead letters these are; "" for the events. Letters lie beside their events.
    """

    root: str
    letters_of: str = ""

    @classmethod
    def of(cls, app: str, stream: str) -> Names:
        """Return the keys of a stream; raises a ConfigError for names that cannot be used."""
        return cls(f"{encode(check_name('app', app))}/{encode(check_name('stream', stream))}")

    @property
    def about(self) -> str:
        """The hash that says how many partitions there are."""
        return f"{STREAM_PREFIX}{{{self.root}}}"

    def partition(self, number: int) -> PartitionNames:
        """The keys of one partition."""
        names = PartitionNames(f"{STREAM_PREFIX}{{{self.root}/{number}}}")
        return PartitionNames(names.dead(self.letters_of)) if self.letters_of else names

    def dead_letters(self, processor: str) -> Names:
        """Return the names of a processor's dead letters, as of a stream."""
        return Names(self.root, processor)


@attrs.frozen
class PartitionNames:
    """The keys of one partition.

    Attributes:
        stream: the Redis stream.
    """

    stream: str

    @property
    def offsets(self) -> str:
        """The hash of offsets by processor: what trimming looks at."""
        return f"{self.stream}:offsets"

    @property
    def lost(self) -> str:
        """The hash of how many entries each processor lost to `trim="oldest"`."""
        return f"{self.stream}:lost"

    @property
    def kept(self) -> str:
        """Return the key of the hash of counters and retention."""
        return f"{self.stream}:kept"

    @property
    def segments(self) -> str:
        """Return the key of the stream of segments.

        It has about one entry for each megabyte: what came before an event.
        """
        return f"{self.stream}:segments"

    @property
    def keys(self) -> tuple[str, ...]:
        """Return a partition's keys, in the order of `partition` in the Lua."""
        return self.stream, self.offsets, self.lost, self.kept, self.segments

    def at(self, processor: str) -> str:
        """The hash of who is at work for a processor, and how it went."""
        return f"{self.stream}:at:{encode(processor)}"

    def dead(self, processor: str) -> str:
        """The stream of a processor's dead letters."""
        return f"{self.stream}:dead:{encode(processor)}"

    def sent(self, sender: str) -> str:
        """What a sender's last append did."""
        return f"{self.stream}:sent:{sender}"
