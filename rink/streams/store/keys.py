"""Build Redis keys.

All keys of a partition share one hash tag, so one script may touch them all.
"""

from __future__ import annotations

import attrs

from rink.core.keys import check_name, encode_name
from rink.errors import ConfigError
from rink.redis.stored_format import FIELD, STREAM_PREFIX

OF_SPARK = "spark/"
"""The prefix of the group of a Spark query.

Such a group has no workers, and its offsets are in the query's checkpoint.
"""


def check_processor_name(name: str) -> str:
    """Return a processor's name, or raise a ConfigError if it is reserved."""
    if name == FIELD:
        raise ConfigError(
            f"a processor cannot be named {name!r}: Rink uses this field name in Redis. Give the "
            "processor another name"
        )
    return name


@attrs.frozen
class Names:
    """Build the keys of one stream of one app.

    Names are percent-encoded. So no name holds a brace, a colon or a slash, with which Rink builds
    keys, and no two names share a key. The part in braces decides the slot on a Redis Cluster.

    Attributes:
        root: the encoded names of the app and the stream.
        letters_of: the processor of these dead letters; "" for events. Dead letters have the slot
            of their events.
    """

    root: str
    letters_of: str = ""

    @classmethod
    def of(cls, app: str, stream: str) -> Names:
        """Return the keys of a stream.

        Raises:
            ConfigError: a name cannot be used.
        """
        return cls(
            f"{encode_name(check_name('app', app))}/{encode_name(check_name('stream', stream))}"
        )

    @property
    def about(self) -> str:
        """Return the key of the hash with the partition count."""
        return f"{STREAM_PREFIX}{{{self.root}}}"

    def partition(self, number: int) -> PartitionNames:
        """Return the keys of one partition."""
        names = PartitionNames(f"{STREAM_PREFIX}{{{self.root}/{number}}}")
        return PartitionNames(names.dead(self.letters_of)) if self.letters_of else names

    def dead_letters(self, processor: str) -> Names:
        """Return the keys of the stream of a processor's dead letters."""
        return Names(self.root, processor)


@attrs.frozen
class PartitionNames:
    """Build the keys of one partition; `stream` is the key of its stream."""

    stream: str

    @property
    def offsets(self) -> str:
        """Return the key of the hash of offsets by processor, for trimming."""
        return f"{self.stream}:offsets"

    @property
    def lost(self) -> str:
        """Return the key of the hash of events that `trim="oldest"` dropped."""
        return f"{self.stream}:lost"

    @property
    def kept(self) -> str:
        """Return the key of the hash of counters and retention."""
        return f"{self.stream}:kept"

    @property
    def segments(self) -> str:
        """Return the key of the stream of segments, see partition.lua."""
        return f"{self.stream}:segments"

    @property
    def keys(self) -> tuple[str, ...]:
        """Return a partition's keys, in the order of `partition` in the Lua."""
        return self.stream, self.offsets, self.lost, self.kept, self.segments

    def at(self, processor: str) -> str:
        """Return the key of the hash of a processor's owner and its progress."""
        return f"{self.stream}:at:{encode_name(processor)}"

    def dead(self, processor: str) -> str:
        """Return the key of the stream of a processor's dead letters."""
        return f"{self.stream}:dead:{encode_name(processor)}"

    def sent(self, sender: str) -> str:
        """Return the key of the answer to a sender's last append."""
        return f"{self.stream}:sent:{sender}"
