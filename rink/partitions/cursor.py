"""One partition's committed offset under one grant: its transactions, and their answers.

The rules that hold in this file:

* Each transaction compares the create revision of the member's record, so that it is of the session
  of the grant, and the `mod_revision` of the offset's key, so that nobody has taken over.
* A take always writes, so that whatever was under way to that key before is refused after it.
* Only an answered transaction says what is committed (R1). While one is unanswered, others go with
  its very compare: of all of them at most one is ever applied.
* What is committed never goes back.

Deliberately absent: etcd, threads and waiting. Both faces carry these transactions out.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from rink.errors import ConfigError, RinkError, RoleLost, StaleToken, UsageError
from rink.etcd.api import Compare, Get, KeyValue, Op, Put, TxnResult, TxnTarget
from rink.partitions import stored as codec
from rink.partitions.stored import Stored


@attrs.frozen
class Txn:
    """A transaction to be sent."""

    compare: tuple[Compare, ...]
    then: tuple[Op, ...]
    otherwise: tuple[Op, ...]


@attrs.frozen
class OffsetPlace:
    """Which partition of which topic it is, whose, and under which keys."""

    topic: str
    partition: int
    partitions: int
    key: bytes
    group: str
    member: str
    record: bytes

    @property
    def role(self) -> str:
        """Return the partition's role."""
        return role_of(self.topic, self.partition)

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic!r} of group {self.group!r}"


def role_of(topic: str, partition: int) -> str:
    """Return the role that a partition is."""
    return f"{topic}/{partition}"


@attrs.define(eq=False)
class Cursor:
    """One partition under one grant; used by one thread at a time.

    `stored` and `seen` are what lies in etcd and its `mod_revision`, as last answered. Once `over`
    is set no transaction of this cursor can succeed any more.
    """

    place: OffsetPlace
    token: int
    session: int  # the create revision of the member's record
    stored: Stored | None = None
    seen: int = 0
    is_taken: bool = False
    over: RinkError | None = None
    _unanswered: list[Stored] = attrs.field(factory=list)

    @property
    def offset(self) -> int:
        """Return what is committed, by the last answer."""
        return self.stored.offset if self.stored else 0

    # ── taking over ──────────────────────────────────────────────────────────────────────────

    def next_of_take(self) -> Stored:
        """Return what a take writes: the found offset, under the new token."""
        return self._written(self.offset)

    def took(self, revision: int) -> None:
        """Take in that the take was applied at a revision."""
        self.stored, self.seen, self.is_taken = self.next_of_take(), revision, True

    def found(self, kv: KeyValue | None) -> None:
        """Take in a value that was not expected.

        This sets `over` where it ends the work here.
        """
        try:
            self.stored = self._read(kv)
        except RinkError as error:
            self.over = error
            return
        self.seen = kv.mod_revision if kv else 0
        if self.stored is not None and self.stored.token > self.token:
            self.over = self._outrun(self.stored)

    def _read(self, kv: KeyValue | None) -> Stored | None:
        if kv is None:
            return None
        found = codec.read(kv.key, kv.value)
        check_partitions(self.place.topic, self.place.partitions, kv.key, found)
        return found

    # ── committing ───────────────────────────────────────────────────────────────────────────

    def commit(self, offset: int) -> Txn | None:
        """Return the transaction that commits an offset, to be sent at once.

        None where the offset is committed.

        Raises:
            StaleToken: this grant counts no more.
            UsageError: the offset is smaller than the committed one.
        """
        if self.over is not None:
            raise self.over
        if offset < self.offset:
            raise UsageError(
                f"offset {offset} of {self.place} is behind {self.offset}, which is committed: a "
                "committed offset never goes back. To work through something anew, use another "
                "topic name, or delete its keys while nobody consumes it"
            )
        if offset == self.offset and not self._unanswered:
            return None
        value = self._written(offset)
        self._unanswered.append(value)  # before it is sent: its caller may be interrupted
        return txn([self], [value])

    def answered(self, offset: int, result: TxnResult) -> bool:
        """Take in the answer to a commit; return whether it is committed.

        Otherwise the commit is sent again.

        Raises:
            StaleToken: another has taken over, or the session of the grant is lost.
            StateError: what lies there cannot be read.
        """
        if result.succeeded:
            self._settle(self._written(offset), result.header.revision)
            return True
        kv = next(iter(result.results[1]), None)
        if kv is not None and kv.mod_revision != self.seen:
            try:
                found = codec.read(kv.key, kv.value)
            except RinkError as error:
                self.over = error
                raise
            if found in self._unanswered:  # one of those that had no answer was applied after all
                self._settle(found, kv.mod_revision)
                return found.offset == offset
        self.over = self._stale(kv)
        raise self.over

    def lose_history(self) -> None:
        """End the cursor: etcd is another one, or was restored.

        Revisions of before mean nothing there.
        """
        self.over = self._refused("etcd has become another cluster, or was restored", 0)

    def _settle(self, committed: Stored, revision: int) -> None:
        self.stored, self.seen = committed, revision
        self._unanswered.clear()  # their compare can never hold again

    def _written(self, offset: int) -> Stored:
        place = self.place
        return Stored(offset, self.token, place.member, place.partitions)

    # ── why not ──────────────────────────────────────────────────────────────────────────────

    def lost(self, why: str) -> RoleLost:
        """Return the error of whoever works on although this assignment is over."""
        place = self.place
        return RoleLost(
            f"{place} is not assigned to {place.member!r} any more: {why}",
            role=place.role,
            group=place.group,
            member=place.member,
            token=self.token,
        )

    def _stale(self, kv: KeyValue | None) -> StaleToken:
        if kv is None:
            return self._refused(f"its key {_text(self.place.key)} has been deleted", 0)
        if kv.mod_revision == self.seen:
            why = f"the session in which {self.place.member!r} was granted it is lost"
            return self._refused(why, 0)
        found = codec.read(kv.key, kv.value)
        who = "another consumer of this member" if found.token == self.token else found.member
        return self._refused(f"{who!r} has taken over at {found.offset}", found.token)

    def _outrun(self, found: Stored) -> StaleToken:
        return self._refused(
            f"{found.member!r} has had it under token {found.token}, which is greater although "
            "nobody else claims the role: the group's keys were deleted after an etcd was "
            f"restored, say. Raise the group's token_base above that, or delete "
            f"{_text(self.place.key)}",
            found.token,
        )

    def _refused(self, why: str, newer: int) -> StaleToken:
        place = self.place
        return StaleToken(
            f"token {self.token} of {place} counts no more: {why}. Whatever was not committed by "
            "then is given out again: stop working on it, and release the assignment",
            role=place.role,
            group=place.group,
            member=place.member,
            token=self.token,
            newer=newer,
        )


def txn(cursors: Sequence[Cursor], values: Sequence[Stored]) -> Txn:
    """Return one transaction that writes each cursor's value.

    If the record or a key has changed, it writes none and brings what is there. Its other branch
    brings the record first, then each cursor's key.
    """
    first = cursors[0]
    keys = [cursor.place.key for cursor in cursors]
    guards = [Compare(cursor.place.key, TxnTarget.MOD, cursor.seen) for cursor in cursors]
    puts = [Put(key, codec.encode(value)) for key, value in zip(keys, values, strict=True)]
    record = first.place.record
    return Txn(
        (Compare(record, TxnTarget.CREATE, first.session), *guards),
        tuple(puts),
        (Get(record), *map(Get, keys)),
    )


def check_partitions(topic: str, partitions: int, key: bytes, found: Stored) -> None:
    """Raise a ConfigError if the topic has another number of partitions."""
    if found.partitions != partitions:
        raise ConfigError(
            f"topic {topic!r} has {found.partitions} partitions by what {_text(key)} says, not "
            f"{partitions}: offsets of the one mean nothing for the other. Give "
            f"partitions={found.partitions}, or another topic name to begin anew"
        )


def _text(key: bytes) -> str:
    return key.decode(errors="backslashreplace")
