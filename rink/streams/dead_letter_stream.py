"""Make a stream of the dead letters of a processor.

    @app.processor(orders.dead_letters("bill"))
    async def alert(events):
        async for letter in events.records():
            await page(f"{letter.event}: {letter.error}")

Each of its partitions is the Redis stream into which the commits of `bill` write dead letters. So a
letter has the number of its event's partition, and letters of one key come in the order in which
their events were given up.

Reading removes no letters: only `requeue` and `discard` do. So nothing is trimmed here, and the
letter at an offset may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, TypeVar

from rink.core.keys import check_name
from rink.errors import ConfigError, UsageError
from rink.streams.consumer.buffer import DATA, StreamEntry
from rink.streams.dead_letter import DeadLetter
from rink.streams.failure_policy import OnError
from rink.streams.store.store import Store
from rink.streams.store.values import PartitionBounds
from rink.streams.stream import Stream, settle

R = TypeVar("R")


class DeadLetterStream(Stream[DeadLetter[R]]):
    """Hold the dead letters of one processor; made by `dead_letters`.

    It has as many partitions as its source. Only the processor's commits write to it.

    Attributes:
        source: the stream that the processor reads.
        processor: the processor's name.
    """

    def __init__(self, source: Stream[R], processor: str) -> None:
        check_name("processor", processor)
        super().__init__(
            source.app,
            f"{source.name}:dead:{processor}",
            record=DeadLetter,
            partition_by=lambda letter: letter.record,
            partition_count=source.partition_count,
            partition_size=source.partition_size,
            trim="oldest",
            codec=_WrittenByCommits(source.name, processor),
        )
        self.source = source
        self.processor = processor
        self.names = source.names.dead_letters(processor)
        self.hasher = source.hasher
        self.partition_size = 0

    @property
    def is_trimmed(self) -> bool:
        """Return False: letters stay until somebody removes them."""
        return False

    @property
    def _bounds(self) -> PartitionBounds:
        """Return the bounds of a partition: any number of letters.

        People may remove letters, so a missing one is no data loss.
        """
        return PartitionBounds(0, loses=True)

    def decode(self, entry: StreamEntry) -> DeadLetter[R]:
        """Return an entry as a dead letter, even if its record does not decode."""
        fields = entry.fields or {}
        try:
            record: R | bytes = self.source.codec.decode(entry.data)
        except Exception:  # it may have been given up for that
            record = entry.data
        return DeadLetter(
            record=record,
            event=_text(fields, b"id"),
            error=_text(fields, b"error"),
            trace=_text(fields, b"trace"),
            attempts=int(_text(fields, b"attempts") or 0),
            processor=self.processor,
        )

    def entry_of(self, record: DeadLetter[R]) -> list[bytes]:
        """Return the entry of a letter in Redis, for tests of processors."""
        original = record.record
        data = original if isinstance(original, bytes) else self.source.codec.encode(original)
        fields = {
            "id": record.event,
            "error": record.error,
            "trace": record.trace,
            "attempts": str(record.attempts),
        }
        return [DATA, data, *(part.encode() for pair in fields.items() for part in pair)]

    def partition_of(self, record: DeadLetter[R]) -> int:
        """Return the partition of a letter's event; 0 if it does not decode."""
        if not isinstance(record, DeadLetter):
            return self.codec.encode(record)
        return 0 if isinstance(record.record, bytes) else self.source.partition_of(record.record)

    def dead_letters(self, processor: str) -> NoReturn:
        """Refuse dead letters of dead letters."""
        raise ConfigError(
            f"stream {self.name!r} has no dead letters of processor {processor!r}: a letter that "
            "cannot be processed stays where it is"
        )

    def on_error(self, wanted: OnError | None) -> OnError:
        """Return the policy for a letter that fails too often: a quarantine.

        Raises:
            ConfigError: the letter would become a dead letter again.
        """
        if wanted == "dead-letter":
            raise ConfigError(
                f"stream {self.name!r} holds dead letters, so its processor cannot make new ones: "
                "use on_error='quarantine' (the default for this stream) or 'halt'"
            )
        return wanted or "quarantine"

    async def _settle(self, store: Store) -> None:
        """Settle the source, and refuse an unknown processor."""
        await settle(self.source, store)
        declared = self.app._processor_names(self.source)  # noqa: SLF001 - of this package
        if self.processor in declared:
            return
        registered = await store.registered(self.source.names.partition(0))
        if self.processor in registered or await self._has_letters(store):
            return
        known = sorted(declared | registered.keys())
        raise ConfigError(
            f"stream {self.source.name!r} has no processor {self.processor!r} whose dead letters "
            f"could be read, neither in app {self.app.name!r} nor in Redis at {store.server}: it "
            f"has {known or 'none'}"
        )

    async def _has_letters(self, store: Store) -> bool:
        """Return whether there are letters of a forgotten processor."""
        for number in range(self.partition_count):
            async for _ in store.entries(self.names.partition(number).stream, most=1):
                return True
        return False


class _WrittenByCommits:
    """Replace the codec, and refuse to send."""

    def __init__(self, source: str, processor: str) -> None:
        self._told = (
            f"dead letters of processor {processor!r} are written by its commits alone: send to "
            f"{source!r}, or requeue a letter"
        )

    def encode(self, _: object) -> NoReturn:
        raise UsageError(self._told)

    def decode(self, _: object) -> NoReturn:
        raise UsageError(self._told)


def _text(fields: Mapping[bytes, bytes], name: bytes) -> str:
    return fields.get(name, b"").decode(errors="backslashreplace")
