"""Hold the events of one grant in memory: read, in flight, done. Pure.

An entry moves one way only:

    read (`feed`) → yielded (`give`) → done (`finish`) → settled (`settled`)

It goes back a step only if it was not processed. The processor failed, and the entry comes again
alone (`fail`). Or the entry did not reach the processor, or the processor could not keep it
(`take_back`, `put_back`). Or a commit was refused (`unfinish`).

Entries are done in the order of their ids, and a commit passes a prefix of the done entries. So the
offset never passes an event that is not done. Only an event that is *given up* ends without
processing. It is skipped, and the commit that passes it also writes its dead letter.

At most `prefetch` entries are held. At most `max_uncommitted` of them are yielded and not settled,
which bounds the events that may come again after a crash of this owner.

Careful mode: after a crash, the events that the crashed owner may have begun come one by one, and
each is marked in Redis before it is processed. Two bounds decide this, and `_alone` is never lower
than `_careful`:

    `_careful`  events up to it may have been begun at a crash: they come alone, and are marked
                (`must_mark`)
    `_alone`    events up to it come alone: the events up to `_careful`, and after a failure all
                events up to the last one that was in flight (`fail`)

The invariant: while an event that came alone is in flight, no other event is. `_give_with_care`
yields nothing while anything is in flight, if either the next entry or the last yielded one comes
alone. So an error or a crash then has exactly one event to blame. The mode ends when the next entry
to yield lies above `_alone`. Every entry up to `_alone` is done or given up then, since each came
alone, and the next entry comes only after that.

This module has no time, no Redis and no tasks. `owner.py` decides what waits for what.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice

import attrs

from rink.redis.script_pipeline import batch_length
from rink.streams.store import entry_ids
from rink.streams.store.values import RawEntry

DATA = b"d"
ONLY = b"only"


@attrs.frozen
class Letter:
    """Hold the reason why an event was given up.

    Attributes:
        error: the error, in one line.
        trace: the traceback, or "".
    """

    error: str
    trace: str
    attempts: int


@attrs.define(eq=False)
class StreamEntry:
    """Hold one event of the partition, as it was read.

    Attributes:
        only: the only processor that gets the event; None for all.
        skipped: the event is passed without processing, see `letter`.
        letter: why the event was given up; None if it is for another processor.
        fields: all fields of the entry, by name; None if it has only `data`.
    """

    id: str
    data: bytes
    only: bytes | None = None
    skipped: bool = False
    letter: Letter | None = None
    fields: Mapping[bytes, bytes] | None = None

    @property
    def size(self) -> int:
        """Return the size in bytes, including a dead letter's traceback."""
        return len(self.data) if self.fields is None else sum(map(len, self.fields.values()))

    @classmethod
    def of(cls, raw: RawEntry) -> StreamEntry:
        """Return the entry that Redis sent."""
        key, fields = raw
        if len(fields) == 2 and fields[0] == DATA:  # nearly all entries
            return cls(key.decode(), fields[1])
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        return cls(key.decode(), named.get(DATA, b""), named.get(ONLY), fields=named)


@attrs.frozen
class Passage:
    """Hold the events that one commit passes, from `expected` to `new`."""

    expected: str
    new: str
    processed: int
    dead: tuple[StreamEntry, ...]


class Buffer:
    """Hold the events of one grant of a partition.

    Args:
        processor: the processor's name; an entry for only another processor is skipped.
        offset: the committed offset.
        prefetch: how many entries may be held.
        max_uncommitted: how many entries may be yielded and not settled.
        careful: each entry up to this id comes alone, and is marked first; "" for none.

    Attributes:
        offset: the offset that is known to be committed.
        read_to: the id that was read last; reading continues behind it.
        stopped: no more events are yielded.
        count_finished: how many events are done, including settled ones.
        size: the bytes of all held events.
        held_back: how many of the last yielded entries have not reached the processor yet. They are
            gathered for a batch, and `finish` leaves them.
    """

    def __init__(
        self, processor: str, offset: str, *, prefetch: int, max_uncommitted: int, careful: str = ""
    ) -> None:
        self.offset = self.read_to = offset
        self.prefetch = prefetch
        self.max_uncommitted = max_uncommitted
        self.stopped = False
        self._processor = processor.encode()
        self._read: deque[StreamEntry] = deque()
        self._out: deque[StreamEntry] = deque()
        self._finished: deque[StreamEntry] = deque()
        self.count_finished = self.held_back = self.size = 0
        self._unsettled = 0  # how many entries of `_out` and `_finished` are not skipped
        self._under_way: Passage | None = None
        self._careful = entry_ids.order(careful) if careful else None
        self._alone = self._careful
        self._attempts: dict[str, int] = {}
        self._given_up: dict[str, Letter] = {}

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> int:
        """Return how many entries may be read now."""
        held = len(self._read) + len(self._out) + len(self._finished)
        return 0 if self.stopped else self.prefetch - held

    @property
    def ready(self) -> int:
        """Return how many entries were read and not yet yielded."""
        return len(self._read)

    def feed(self, entries: Iterable[RawEntry]) -> None:
        """Add the entries that were read behind `read_to`, in order."""
        read = [StreamEntry.of(raw) for raw in entries]
        self._read.extend(read)
        # Nearly all entries have only data, and the property costs as much as the rest of the loop.
        self.size += sum(
            [len(entry.data) if entry.fields is None else entry.size for entry in read]
        )
        if read:
            self.read_to = read[-1].id

    # ── yielding ─────────────────────────────────────────────────────────────────────────────

    @property
    def may_yield(self) -> int:
        """Return how many events may be yielded before the next commit."""
        return self.max_uncommitted - self._unsettled

    @property
    def next_ceiling(self) -> str:
        """Return the last id that may be yielded before the next ceiling.

        It is at most `max_uncommitted` events ahead, even if more were read. If this owner crashes,
        the next owner runs the events up to it one by one.
        """
        if not self._read:
            return self.read_to
        return self._read[min(self.max_uncommitted, len(self._read)) - 1].id

    @property
    def has_one_alone(self) -> bool:
        """Return whether the in-flight event was yielded alone."""
        return bool(self._out) and self._is_alone(self._out[-1])

    @property
    def is_held_up(self) -> bool:
        """Return whether an event must be done before the next is yielded."""
        return self._unsettled >= self.max_uncommitted and not self._finished

    def behind(self, entry: StreamEntry, count: int) -> list[StreamEntry]:
        """Return up to `count` entries behind `entry` that will be yielded."""
        position = entry_ids.order(entry.id)
        later = (
            other
            for other in self._read
            if other.only in (None, self._processor)
            and other.id not in self._given_up
            and entry_ids.order(other.id) > position
        )
        return list(islice(later, count))

    def give(self, count: int) -> list[StreamEntry]:
        """Yield up to `count` entries, and pass skipped entries silently."""
        entries: list[StreamEntry] = []
        count = min(count, self.may_yield)
        if self.stopped or count <= 0:
            return entries
        if self._alone is None and not self._given_up:
            while self._read and len(entries) < count:
                entry = self._read.popleft()
                self._out.append(entry)
                self._skip_others(entry)
                if not entry.skipped:
                    entries.append(entry)
        else:
            self._give_with_care(count, entries)
        self._unsettled += len(entries)
        if not entries:
            self._finish_skipped()
        return entries

    def give_plain(self, ceiling: tuple[int, int]) -> StreamEntry | None:
        """Yield one entry, if it is ordinary and not above the ceiling."""
        if self.stopped or not self._read or self._alone or self._given_up or self.may_yield < 1:
            return None
        entry = self._read[0]
        if entry.only is not None or entry_ids.order(entry.id) > ceiling:
            return None
        self._out.append(self._read.popleft())
        self._unsettled += 1
        return entry

    def _give_with_care(self, count: int, entries: list[StreamEntry]) -> None:
        # See "Careful mode" above. The check comes before the entry leaves `_read`. So an entry
        # that comes alone is yielded only if no other entry is in flight, and none joins it.
        while self._read and len(entries) < count:
            entry = self._read[0]
            alone = self._is_alone(entry)
            if (alone or self.has_one_alone) and self.has_yielded:
                return
            self._out.append(self._read.popleft())
            self._skip_others(entry)
            if entry.id in self._given_up:
                entry.skipped, entry.letter = True, self._given_up[entry.id]
            if entry.skipped:
                continue
            entries.append(entry)
            if alone:
                return
        if self._read and not self._is_alone(self._read[0]):
            self._alone = self._careful = None

    def _skip_others(self, entry: StreamEntry) -> None:
        if entry.only is not None and entry.only != self._processor:
            entry.skipped = True

    def _is_alone(self, entry: StreamEntry) -> bool:
        return self._alone is not None and entry_ids.order(entry.id) <= self._alone

    def must_mark(self, entry: StreamEntry) -> bool:
        """Return whether this entry may have crashed an earlier owner."""
        return self._careful is not None and entry_ids.order(entry.id) <= self._careful

    def stop(self) -> None:
        """Yield no more events."""
        self.stopped = True

    # ── the end of an event ──────────────────────────────────────────────────────────────────

    def finish(self, count: int | None = None) -> None:
        """Mark all in-flight events as done, or the first `count` not skipped."""
        if self.held_back:
            reached = sum(not entry.skipped for entry in self._out) - self.held_back
            count = reached if count is None else min(count, reached)
        while self._out:
            if not self._out[0].skipped and count is not None:
                if count == 0:
                    return
                count -= 1
            self.count_finished += not self._out[0].skipped
            self._finished.append(self._out.popleft())

    def unfinish(self) -> None:
        """Put the done events back in flight after a commit that wrote nothing."""
        self._under_way = None
        while self._finished:
            entry = self._finished.pop()
            self.count_finished -= not entry.skipped
            self._out.appendleft(entry)

    def _finish_skipped(self) -> None:
        while self._out and self._out[0].skipped:
            self._finished.append(self._out.popleft())

    def fail(self) -> tuple[StreamEntry | None, int]:
        """Put the in-flight events back after an error, to come again alone.

        Returns:
            The event to blame and its number of failures; None if several events were in flight.
        """
        in_flight = self.in_hand
        if not in_flight:
            return None, 0
        last = in_flight[-1]
        was_alone = len(in_flight) == 1 or self._is_alone(last)
        self.put_back()
        self._alone = max(self._alone or (0, 0), entry_ids.order(last.id))
        if not was_alone:
            return None, 0
        self._attempts[last.id] = self._attempts.get(last.id, 0) + 1
        return last, self._attempts[last.id]

    def put_back(self) -> None:
        """Put the in-flight events back; mark skipped ones before them as done."""
        self._finish_skipped()
        while self._out:
            entry = self._out.pop()
            self._unsettled -= not entry.skipped
            entry.skipped, entry.letter = False, None
            self._read.appendleft(entry)

    def end_alone(self) -> None:
        """End the careful mode."""
        self._alone = self._careful = None

    def take_back(self, first: StreamEntry) -> None:
        """Put back the entries from `first` on, which no processor has seen."""
        entry = None
        while entry is not first:
            entry = self._out.pop()
            self._unsettled -= not entry.skipped
            self._read.appendleft(entry)

    def mark_given_up(self, entry_id: str, letter: Letter) -> None:
        """Skip an event when its turn comes; it must not be in flight."""
        self._given_up[entry_id] = letter

    @property
    def in_hand(self) -> list[StreamEntry]:
        """Return the in-flight events: yielded, not done, not skipped."""
        return [entry for entry in self._out if not entry.skipped]

    @property
    def has_yielded(self) -> bool:
        """Return whether any event is in flight."""
        return any(not entry.skipped for entry in self._out)

    # ── committing ───────────────────────────────────────────────────────────────────────────

    @property
    def has_finished(self) -> bool:
        """Return whether there are events to commit, or in the present commit."""
        return bool(self._finished)

    def passage(self, max_bytes: int | None = None) -> Passage | None:
        """Return the next commit, or None; it stays the same until settled.

        Args:
            max_bytes: limits the dead letters of one commit, which has at least one; None for no
                limit. The events behind them go into the next commit.
        """
        if self._under_way is None and self._finished:
            passed = list(self._finished)
            if max_bytes is not None and any(entry.letter for entry in passed):
                sizes = (len(entry.data) if entry.letter else 0 for entry in passed)
                passed = passed[: batch_length(sizes, max_bytes, len(passed))]
            self._under_way = Passage(
                expected=self.offset,
                new=passed[-1].id,
                processed=sum(not entry.skipped for entry in passed),
                dead=tuple(entry for entry in passed if entry.letter is not None),
            )
        return self._under_way

    def settled(self) -> None:
        """Forget the events of the present commit after its success."""
        passage = self._under_way
        assert passage is not None, "no commit is under way"
        self._under_way = None
        self.offset = passage.new
        while self._finished:
            entry = self._finished.popleft()
            self.size -= len(entry.data) if entry.fields is None else entry.size
            self._unsettled -= not entry.skipped
            self._attempts.pop(entry.id, None)
            self._given_up.pop(entry.id, None)
            if entry.id == passage.new:
                return
