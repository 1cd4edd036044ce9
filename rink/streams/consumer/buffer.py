"""What one grant of a partition holds in memory: read, yielded, finished, committed. Pure.

An entry moves one way only:

    read (`feed`) → yielded (`give`) → finished (`finish`) → settled (`settled`)

and goes back a step only where it was not processed: the processor failed (`fail`, to come again alone), or
did not get or keep it (`take_back`, `put_back`); or where a commit was refused (`unfinish`).
Entries are finished in the order of their ids, and a commit passes a prefix of them; so the offset never
passes an event that was not finished. An event ends without having been processed in one way: it is
*condemned*, then skipped, and its dead letter goes along with the commit that passes it.

At most `prefetch` entries are held, and at most `max_uncommitted` of them are yielded and not settled: that
bounds what can come again after a crash of this owner.

Deliberately absent: time, Redis, tasks. Who waits for what is `partition.py`.
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
    """Why an event was given up.

    Attributes:
        error: one line.
        trace: the traceback, or "".
        attempts: how often it was tried.
    """

    error: str
    trace: str
    attempts: int


@attrs.define(eq=False)
class Entry:
    """One event of the partition, as it was read.

    Attributes:
        data: the record's bytes.
        only: the one processor that it is for; None: each.
        skipped: it is passed without being processed, see `letter`.
        letter: why it was given up; None where it was for another processor.
        fields: all fields of the entry, by name; None if it has `data` alone.
    """

    id: str
    data: bytes
    only: bytes | None = None
    skipped: bool = False
    letter: Letter | None = None
    fields: Mapping[bytes, bytes] | None = None

    @property
    def size(self) -> int:
        """Return its size in bytes, including a dead letter's traceback."""
        return len(self.data) if self.fields is None else sum(map(len, self.fields.values()))

    @classmethod
    def of(cls, raw: RawEntry) -> Entry:
        """Return what Redis sent as an entry."""
        key, fields = raw
        if len(fields) == 2 and fields[0] == DATA:  # nearly all are so
            return cls(key.decode(), fields[1])
        named = dict(zip(fields[::2], fields[1::2], strict=True))
        return cls(key.decode(), named.get(DATA, b""), named.get(ONLY), fields=named)


@attrs.frozen
class Passage:
    """What one commit passes."""

    expected: str
    new: str
    processed: int
    dead: tuple[Entry, ...]


class Buffer:
    """One grant of one partition.

    Args:
        processor: whose; an entry that is for another one only is skipped.
        offset: what is committed.
        prefetch: how many entries may be held.
        max_uncommitted: how many of them may be yielded and not settled.
        careful: up to this id, each comes alone and is to be marked before; "" for nothing.

    Attributes:
        offset: what is committed, and known to be.
        read_to: what was read last; read on from behind it.
        stopped: nothing more is yielded.
        count_finished: how many events have been finished.
        size: bytes of all that is held.
        held_back: how many of those that were yielded last have not reached the processor yet: whoever gathers
            a batch has them, and nothing finishes them.
    """

    def __init__(
        self, processor: str, offset: str, *, prefetch: int, max_uncommitted: int, careful: str = ""
    ) -> None:
        self.offset = self.read_to = offset
        self.prefetch = prefetch
        self.max_uncommitted = max_uncommitted
        self.stopped = False
        self._processor = processor.encode()
        self._read: deque[Entry] = deque()
        self._out: deque[Entry] = deque()
        self._finished: deque[Entry] = deque()
        self.count_finished = self.held_back = self.size = 0
        self._unsettled = 0  # of those two, how many are not skipped
        self._under_way: Passage | None = None
        self._careful = entry_ids.order(careful) if careful else None
        self._alone = self._careful  # up to here, each comes alone
        self._attempts: dict[str, int] = {}
        self._condemned: dict[str, Letter] = {}

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> int:
        """Return how many entries may be read now."""
        held = len(self._read) + len(self._out) + len(self._finished)
        return 0 if self.stopped else self.prefetch - held

    @property
    def ready(self) -> int:
        """Return how many entries were read and not yielded."""
        return len(self._read)

    def feed(self, entries: Iterable[RawEntry]) -> None:
        """Take in what was read from behind `read_to`, in order."""
        read = [Entry.of(raw) for raw in entries]
        self._read.extend(read)
        # Nearly all have no other fields, and a property costs as much as the rest of this loop.
        self.size += sum([len(one.data) if one.fields is None else one.size for one in read])
        if read:
            self.read_to = read[-1].id

    # ── yielding ─────────────────────────────────────────────────────────────────────────────

    @property
    def may_yield(self) -> int:
        """Return how many may be yielded before something is settled."""
        return self.max_uncommitted - self._unsettled

    @property
    def next_ceiling(self) -> str:
        """Return the last ID that may be yielded for now.

        It is at most `max_uncommitted` events ahead, however many were read.

        If this owner crashes, the next one runs the events up to it one by one.
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
        """Return whether `max_uncommitted` is used up.

        Then nothing is yielded before something that was yielded is finished.
        """
        return self._unsettled >= self.max_uncommitted and not self._finished

    def behind(self, entry: Entry, count: int) -> list[Entry]:
        """Return the entries behind one, up to `count`, that will be yielded."""
        mine = (
            one
            for one in self._read
            if one.only in (None, self._processor) and one.id not in self._condemned
        )
        return list(
            islice(
                (one for one in mine if entry_ids.order(one.id) > entry_ids.order(entry.id)), count
            )
        )

    def give(self, count: int) -> list[Entry]:
        """Yield up to `count` entries; those that are skipped go along silently."""
        given: list[Entry] = []
        count = min(count, self.may_yield)
        if self.stopped or count <= 0:
            return given
        if self._alone is None and not self._condemned:
            while self._read and len(given) < count:
                entry = self._read.popleft()
                self._out.append(entry)
                self._skip_others(entry)
                if not entry.skipped:
                    given.append(entry)
        else:
            self._give_with_care(count, given)
        self._unsettled += len(given)
        if not given:
            self._finish_skipped()
        return given

    def give_plain(self, ceiling: tuple[int, int]) -> Entry | None:
        """Yield one entry, if nothing about it is special and it is not above the ceiling."""
        if self.stopped or not self._read or self._alone or self._condemned or self.may_yield < 1:
            return None
        entry = self._read[0]
        if entry.only is not None or entry_ids.order(entry.id) > ceiling:
            return None
        self._out.append(self._read.popleft())
        self._unsettled += 1
        return entry

    def _give_with_care(self, count: int, given: list[Entry]) -> None:
        while self._read and len(given) < count:
            entry = self._read[0]
            alone = self._is_alone(entry)
            if (alone or self.has_one_alone) and self.has_yielded:
                return
            self._out.append(self._read.popleft())
            self._skip_others(entry)
            if entry.id in self._condemned:
                entry.skipped, entry.letter = True, self._condemned[entry.id]
            if entry.skipped:
                continue
            given.append(entry)
            if alone:
                return
        if self._read and not self._is_alone(self._read[0]):
            self._alone = self._careful = None

    def _skip_others(self, entry: Entry) -> None:
        if entry.only is not None and entry.only != self._processor:
            entry.skipped = True

    def _is_alone(self, entry: Entry) -> bool:
        return self._alone is not None and entry_ids.order(entry.id) <= self._alone

    def must_mark(self, entry: Entry) -> bool:
        """Return whether an earlier owner crashed while it had this entry.

        The entry may be the cause.
        """
        return self._careful is not None and entry_ids.order(entry.id) <= self._careful

    def stop(self) -> None:
        """Yield nothing more."""
        self.stopped = True

    # ── the end of an event ──────────────────────────────────────────────────────────────────

    def finish(self, count: int | None = None) -> None:
        """What was yielded has been processed: all of it, or the first `count` of what was not skipped."""
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
        """The commit under way was refused, and nothing of it written: what it passes is not finished."""
        self._under_way = None
        while self._finished:
            entry = self._finished.pop()
            self.count_finished -= not entry.skipped
            self._out.appendleft(entry)

    def _finish_skipped(self) -> None:
        while self._out and self._out[0].skipped:
            self._finished.append(self._out.popleft())

    def fail(self) -> tuple[Entry | None, int]:
        """What is yielded and not finished comes again, each alone.

        Returns:
            The event to blame and how often it has failed: None where several were out at once.
        """
        tried = self.in_hand
        if not tried:
            return None, 0
        last = tried[-1]
        was_alone = len(tried) == 1 or self._is_alone(last)
        self.put_back()
        self._alone = max(self._alone or (0, 0), entry_ids.order(last.id))
        if not was_alone:
            return None, 0
        self._attempts[last.id] = self._attempts.get(last.id, 0) + 1
        return last, self._attempts[last.id]

    def put_back(self) -> None:
        """What is yielded and not finished is yielded again; what is skipped before it has come to its end."""
        self._finish_skipped()
        while self._out:
            entry = self._out.pop()
            self._unsettled -= not entry.skipped
            entry.skipped, entry.letter = False, None
            self._read.appendleft(entry)

    def end_alone(self) -> None:
        """Yield events together again: who commits several at once cannot be given them one by one."""
        self._alone = self._careful = None

    def take_back(self, first: Entry) -> None:
        """What was yielded from this one on has reached nobody: it is yielded again."""
        entry = None
        while entry is not first:
            entry = self._out.pop()
            self._unsettled -= not entry.skipped
            self._read.appendleft(entry)

    def condemn(self, entry_id: str, letter: Letter) -> None:
        """Skip an event that was not yielded, or came back, when it is its turn."""
        self._condemned[entry_id] = letter

    @property
    def in_hand(self) -> list[Entry]:
        """Return what is yielded and not finished, and not skipped."""
        return [entry for entry in self._out if not entry.skipped]

    @property
    def has_yielded(self) -> bool:
        """Something is yielded and not finished."""
        return any(not entry.skipped for entry in self._out)

    # ── committing ───────────────────────────────────────────────────────────────────────────

    @property
    def has_finished(self) -> bool:
        """There is something to commit, or a commit is under way."""
        return bool(self._finished)

    def passage(self, max_bytes: int | None = None) -> Passage | None:
        """Return the next commit: the same until it is settled, or None.

        Args:
            max_bytes: limits the dead letters in one commit, one at least; None for no limit. Events that were
                finished behind them go into the next commit.
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
        """The commit under way was carried out."""
        passage = self._under_way
        assert passage is not None, "nothing is under way"
        self._under_way = None
        self.offset = passage.new
        while self._finished:
            entry = self._finished.popleft()
            self.size -= len(entry.data) if entry.fields is None else entry.size
            self._unsettled -= not entry.skipped
            self._attempts.pop(entry.id, None)
            self._condemned.pop(entry.id, None)
            if entry.id == passage.new:
                return
