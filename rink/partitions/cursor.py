"""Compute a partition's transactions of one grant, and read the answers.

These rules hold:

* Each transaction compares the create revision of the member's record, so it belongs to the session
  of the grant. It also compares the `mod_revision` of the offset's key, so nobody has taken over.
* A take always writes. So earlier transactions to that key that arrive later are refused.
* Only an answered transaction shows the committed offset (R1). While a commit is unanswered, later
  commits have the same compare. So at most one of them is ever applied.
* A committed offset never goes back.

This module has no etcd, no threads and no waits. Both faces carry these transactions out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs

from rink.errors import ConfigError, RinkError, RoleLost, StaleToken, UsageError
from rink.etcd.api import Compare, Get, KeyValue, Op, Put, TxnResult, TxnTarget
from rink.partitions import stored as codec
from rink.partitions.stored import Stored


class Txn(NamedTuple):
    """Hold a transaction: the arguments of `Etcd.txn`."""

    compare: tuple[Compare, ...]
    then: tuple[Op, ...]
    otherwise: tuple[Op, ...]


@attrs.frozen
class OffsetPlace:
    """Hold a partition of a topic, with its member and keys."""

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
    """Return the name of a partition's role."""
    return f"{topic}/{partition}"


@attrs.define(eq=False)
class Cursor:
    """Track one partition under one grant; for one thread at a time.

    `stored` and `seen` are the value in etcd and its `mod_revision`, by the last answer. If `over`
    is set, no transaction of this cursor can succeed any more.
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
        """Return the committed offset, by the last answer."""
        return self.stored.offset if self.stored else 0

    # ── taking over ──────────────────────────────────────────────────────────────────────────

    def next_of_take(self) -> Stored:
        """Return the value that a take writes: same offset, new token."""
        return self._written(self.offset)

    def took(self, revision: int) -> None:
        """Note that the take was applied at a revision."""
        self.stored, self.seen, self.is_taken = self.next_of_take(), revision, True

    def found(self, kv: KeyValue | None) -> None:
        """Note an unexpected value; set `over` if it ends the work here."""
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
        value = codec.read(kv.key, kv.value)
        check_partitions(self.place.topic, self.place.partitions, kv.key, value)
        return value

    # ── committing ───────────────────────────────────────────────────────────────────────────

    def commit(self, offset: int) -> Txn | None:
        """Return the transaction that commits an offset, to be sent at once.

        Return None if the offset is committed.

        Raises:
            StaleToken: this grant is no longer valid.
            UsageError: the offset is smaller than the committed one.
        """
        if self.over is not None:
            raise self.over
        if offset < self.offset:
            raise UsageError(
                f"offset {offset} of {self.place} is behind {self.offset}, which is committed: a "
                "committed offset never goes back. To process something again, use another topic "
                "name, or delete the topic's keys while nobody consumes it"
            )
        if offset == self.offset and not self._unanswered:
            return None
        value = self._written(offset)
        self._unanswered.append(value)  # before it is sent, since the caller may be interrupted
        return txn([self], [value])

    def answered(self, offset: int, result: TxnResult) -> bool:
        """Read the answer to a commit. Return False if it must be sent again.

        Raises:
            StaleToken: another member took over, or the session of the grant is lost.
            StateError: the value in etcd cannot be read.
        """
        if result.succeeded:
            self._settle(self._written(offset), result.header.revision)
            return True
        kv = next(iter(result.results[1]), None)
        if kv is not None and kv.mod_revision != self.seen:
            try:
                value = codec.read(kv.key, kv.value)
            except RinkError as error:
                self.over = error
                raise
            if value in self._unanswered:  # an unanswered commit was applied after all
                self._settle(value, kv.mod_revision)
                return value.offset == offset
        self.over = self._stale(kv)
        raise self.over

    def lose_history(self) -> None:
        """End the cursor, because etcd is another cluster, or was restored.

        Earlier revisions mean nothing there.
        """
        self.over = self._refused("etcd has become another cluster, or was restored", 0)

    def _settle(self, committed: Stored, revision: int) -> None:
        self.stored, self.seen = committed, revision
        self._unanswered.clear()  # their compare can never hold again

    def _written(self, offset: int) -> Stored:
        place = self.place
        return Stored(offset, self.token, place.member, place.partitions)

    # ── errors ───────────────────────────────────────────────────────────────────────────────

    def lost(self, why: str) -> RoleLost:
        """Return the error for work on an assignment that is over."""
        text = f"{self.place} is not assigned to {self.place.member!r} any more: {why}"
        return RoleLost(text, **self._about)

    @property
    def _about(self) -> dict[str, Any]:
        """Return the attributes of an error about the role."""
        place = self.place
        return {
            "role": place.role,
            "group": place.group,
            "member": place.member,
            "token": self.token,
        }

    def _stale(self, kv: KeyValue | None) -> StaleToken:
        if kv is None:
            return self._refused(f"its key {_text(self.place.key)} has been deleted", 0)
        if kv.mod_revision == self.seen:
            why = f"the session in which {self.place.member!r} was granted it is lost"
            return self._refused(why, 0)
        value = codec.read(kv.key, kv.value)
        owner = "another consumer of this member" if value.token == self.token else value.member
        return self._refused(f"{owner!r} has taken over at {value.offset}", value.token)

    def _outrun(self, value: Stored) -> StaleToken:
        return self._refused(
            f"{value.member!r} had the partition under token {value.token}. That token is greater, "
            "although nobody else claims the role. This happens, for example, if the group's keys "
            "were deleted after etcd was restored. Raise the group's token_base above that token, "
            f"or delete {_text(self.place.key)}",
            value.token,
        )

    def _refused(self, why: str, newer: int) -> StaleToken:
        return StaleToken(
            f"token {self.token} of {self.place} is stale: {why}. Uncommitted work is "
            "repeated elsewhere: stop working on it, and release the assignment",
            newer=newer,
            **self._about,
        )


def txn(cursors: Sequence[Cursor], values: Sequence[Stored]) -> Txn:
    """Return one transaction that writes each cursor's value.

    If the record or a key has changed, it writes nothing. Then its result has the record, and after
    it each cursor's key.
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


def check_partitions(topic: str, partitions: int, key: bytes, value: Stored) -> None:
    """Raise a ConfigError if the topic has another number of partitions."""
    if value.partitions != partitions:
        raise ConfigError(
            f"topic {topic!r} has partitions={value.partitions} by the value of {_text(key)}, not "
            f"{partitions}: offsets of one number mean nothing for the other. Give "
            f"partitions={value.partitions}, or another topic name to begin anew"
        )


def _text(key: bytes) -> str:
    return key.decode(errors="backslashreplace")
