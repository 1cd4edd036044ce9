"""Move each partition of this member from its grant to its release.

One thread reads the tracker's changes of roles, and the user's releases. It changes the states of
the partitions, and never waits for etcd. Takes run on threads of their own. So a take that hangs
delays only the partitions of its own transaction, and no revocation.

    taking ─ its offset was taken over → ready ─ the user asks for changes → delivered
    delivered ─ its role is lost → revoked ─ the user releases it → its role is released
    taking, ready ─ its role is lost → its role is released at once
    delivered ─ the user releases it, and its role is held → taking, again
"""

from __future__ import annotations

import collections
import enum
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import attrs

from rink.core.keys import Keys, OffsetKeys
from rink.core.retry_delay import backoff
from rink.engine.clock import Mailbox
from rink.engine.engine import Engine
from rink.engine.request_threads import RequestThreads
from rink.engine.signals import Signal
from rink.errors import EtcdTooLarge, ForkedProcessError, RinkError
from rink.etcd.api import Etcd
from rink.partitions.cursor import Cursor, OffsetPlace, role_of, txn
from rink.role_set import Tracker
from rink.roles import BaseRole

log = logging.getLogger("rink")

R = TypeVar("R", bound=BaseRole)

MAX_TAKEN_AT_ONCE = 32
"""The most partitions of one transaction; etcd allows 128 operations, and 1.5 MB."""


class HeldPartitionState(enum.Enum):
    """Represent the state of a partition in this process."""

    TAKING = "taking"
    READY = "ready"
    DELIVERED = "delivered"
    REVOKED = "revoked"


@attrs.define(eq=False)
class HeldPartition(Generic[R]):
    """Hold one partition under one grant.

    Its state is changed with the lock of `HeldPartitions`. `committing` is the lock of the face
    that keeps its commits apart. `lost` is made on its first use. It is not the role's own signal,
    since another `HeldPartition` follows under the same grant after a release without a loss.
    """

    role: R
    cursor: Cursor
    committing: Any
    state: HeldPartitionState = HeldPartitionState.TAKING
    is_released: bool = False
    lost: Signal | None = None
    assignment: Any = None
    failures: int = 0
    retry_at: float = float("-inf")

    @property
    def partition(self) -> int:
        """Return the partition's number."""
        return self.cursor.place.partition

    @property
    def is_with_user(self) -> bool:
        """Return whether the user has the partition, and has not released it."""
        delivered = {HeldPartitionState.DELIVERED, HeldPartitionState.REVOKED}
        return self.state in delivered and not self.is_released


@attrs.frozen
class Topic:
    """Hold a topic, with the member that consumes it."""

    name: str
    partitions: int
    engine: Engine
    etcd: Etcd
    group_keys: Keys
    keys: OffsetKeys

    def cursor(self, partition: int, token: int) -> Cursor:
        """Return a cursor for a partition that has just been granted."""
        engine, name = self.engine, self.engine.node.name
        with engine.lock:
            record = engine.node.view.members.get(name)  # after a loss: a later record, or None
        key, own = self.keys.partition(partition), self.group_keys.member(name)
        place = OffsetPlace(self.name, partition, self.partitions, key, engine.group, name, own)
        return Cursor(place, token, record.create_revision if record else 0)


def take_over(etcd: Etcd, cursors: Sequence[Cursor]) -> None:
    """Take over the offsets of several cursors of one session.

    Afterwards each cursor is taken or over. If neither, the session is lost. A transaction that
    etcd refuses for its size is halved until it passes.

    Raises:
        EtcdError: etcd did not answer, or refused a single cursor. Call this again later.
    """
    left = [cursor for cursor in cursors if not cursor.is_taken and cursor.over is None]
    while left:
        request = txn(left, [cursor.next_of_take() for cursor in left])
        try:
            result = etcd.txn(*request)
        except EtcdTooLarge:  # too many operations, or too many bytes
            if len(left) == 1:
                raise
            middle = len(left) // 2
            try:
                take_over(etcd, left[:middle])
            finally:
                take_over(etcd, left[middle:])
            return
        if result.succeeded:
            for cursor in left:
                cursor.took(result.header.revision)
            return
        record, *values = result.results
        if not record or record[0].create_revision != left[0].session:
            return  # every role is lost, or about to be lost
        for cursor, kvs in zip(left, values, strict=True):
            cursor.found(next(iter(kvs), None))
        left = [cursor for cursor in left if cursor.over is None]


class HeldPartitions(Generic[R]):
    """Hold the partitions of a topic that are granted to this member.

    Each face passes its own classes. `make_lock` makes the lock that keeps two commits of one
    partition apart. `wake` is called on any thread when there is a change to take, or at the end.
    """

    def __init__(
        self,
        topic: Topic,
        role_class: type[R],
        assignment_class: Callable[[Any, Any], Any],
        make_lock: Callable[[], Any],
        wake: Callable[[], None],
    ) -> None:
        self.is_over = False
        self.topic = topic
        self._assignment_class = assignment_class
        self._make_lock = make_lock
        self._wake = wake
        self._clock = topic.engine.clock
        self._lock = threading.Lock()
        self._by_role: dict[str, HeldPartition[R]] = {}
        self._undelivered = collections.deque[tuple[HeldPartition[R], bool] | Exception]()
        self._due: list[HeldPartition[R]] = []  # to be taken over
        self._is_woken = False
        self._is_closed = False
        names = [role_of(topic.name, number) for number in range(topic.partitions)]
        self._partition_of = {name: number for number, name in enumerate(names)}
        self._mailbox: Mailbox[Callable[[], object]] | None = None
        self._request_threads = RequestThreads(self._clock)
        self._tracker = Tracker(topic.engine, role_class, names, self._wake_up)

    # ── for the user's threads ───────────────────────────────────────────────────────────────

    def refuse_fork(self) -> None:
        """Raise in a forked child, which has no assignments."""
        if self.topic.engine.forked:
            raise ForkedProcessError(
                f"this consumer of topic {self.topic.name!r} belongs to the parent process; join "
                "in this process instead"
            )

    def start(self) -> None:
        """Request every partition."""
        mailbox = self._mailbox = self._clock.mailbox()
        self._tracker.follow(True)
        name = f"rink-partitions-{self.topic.name}"
        threading.Thread(target=self._run, args=(mailbox,), name=name, daemon=True).start()
        self._tracker.start()

    def close(self) -> None:
        """Release all partitions, and withdraw all requests, unless forked."""
        if self.topic.engine.forked:
            return
        with self._lock:
            for held in self._by_role.values():
                held.is_released = True
            self._is_closed = True  # no change is delivered from now on
        self._tracker.close()

    def take_change(self) -> tuple[HeldPartition[R], bool] | None:
        """Return the next change (a partition, and True if assigned), or None.

        It raises the error of a partition that cannot be consumed.
        """
        with self._lock:
            if not self._undelivered or self._is_closed:
                return None
            change = self._undelivered.popleft()
            if isinstance(change, Exception):
                raise change
            held, is_assigned = change
            if is_assigned:
                held.state = HeldPartitionState.DELIVERED
            return change

    def delivered(self) -> dict[int, HeldPartition[R]]:
        """Return the partitions that the user has not released, by number."""
        with self._lock:
            held_partitions = list(self._by_role.values())
        return {held.partition: held for held in held_partitions if held.is_with_user}

    def find(self, partition: int) -> HeldPartition[R] | None:
        """Return a partition that the user has and has not released, or None."""
        held = self._by_role.get(role_of(self.topic.name, partition))
        return held if held is not None and held.is_with_user else None

    def lost(self, held: HeldPartition[R]) -> Signal:
        """Return the signal of the loss or release of a partition."""
        of_role = held.role._signal()  # noqa: SLF001 - a friend of the handle
        with self._lock:
            is_new = held.lost is None
            signal = held.lost = held.lost or Signal(self._clock)
        if is_new:
            of_role.then(signal.set)
        # Invariant: `release` sets `is_released` before it reads `lost`, and this sets `lost`
        # before it reads `is_released`. So at least one of the two sets the signal.
        if held.is_released:
            signal.set()
            of_role.forget(signal.set)
        return signal

    def release(self, held: HeldPartition[R]) -> None:
        """Release a partition. A second call or a forked child does nothing."""
        if not held.is_released and not self.topic.engine.forked:
            held.is_released = True
            if held.lost is not None:
                held.lost.set()
                held.role._handle.lost.forget(held.lost.set)  # noqa: SLF001 - a friend
            self._post(partial(self._released, held))

    # ── the thread ───────────────────────────────────────────────────────────────────────────

    def _wake_up(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._post(self._look)

    def _post(self, message: Callable[[], object]) -> None:
        if self._mailbox is not None:
            self._mailbox.put(message)

    def _run(self, mailbox: Mailbox[Callable[[], object]]) -> None:
        try:
            while not self._tracker.is_over:
                for message in mailbox.take(self._retry_at()):
                    message()
                self._take_due()
            self._look()  # for changes that came before the end
        except Exception as error:
            log.critical("the consumer of topic %r failed", self.topic.name, exc_info=True)
            self._deliver(error)  # raised in the user's `with`, whose end releases everything
        finally:
            mailbox.close()
            self._request_threads.close()
            self.is_over = True
            self._wake()

    def _retry_at(self) -> float | None:
        return min((held.retry_at for held in self._due), default=None)

    def _look(self) -> None:
        self._is_woken = False  # comes first: a change from now on posts another look
        while (change := self._tracker.take()) is not None:
            if change.gained:
                self._begin(change.role)
            else:
                self._lost(change.role)

    def _begin(self, role: R) -> None:
        cursor = self.topic.cursor(self._partition_of[role.name], role.token)
        held = HeldPartition(role, cursor, self._make_lock())
        held.assignment = self._assignment_class(self, held)
        with self._lock:
            self._by_role[role.name] = held
        if role.is_held:  # if not, the loss comes next, and there may be no record to compare
            self._due.append(held)

    def _lost(self, role: R) -> None:
        with self._lock:
            held = self._by_role[role.name]
            is_delivered = held.state is HeldPartitionState.DELIVERED
            if is_delivered:
                held.state = HeldPartitionState.REVOKED
                self._undelivered.append((held, False))
            elif held.state is HeldPartitionState.READY:
                self._undelivered.remove((held, True))
        if is_delivered:
            self._wake()
        if not is_delivered or held.is_released:
            self._let_go(held)

    def _released(self, held: HeldPartition[R]) -> None:
        if self._by_role.get(held.role.name) is not held:
            return
        if held.state is HeldPartitionState.REVOKED:
            self._let_go(held)
        elif held.role.is_held:
            self._begin(held.role)
        # Otherwise the loss comes next, and finds the partition released.

    def _let_go(self, held: HeldPartition[R]) -> None:
        with self._lock:
            del self._by_role[held.role.name]
        self._tracker.done(held.role)

    def _deliver(self, change: tuple[HeldPartition[R], bool] | Exception) -> None:
        with self._lock:
            self._undelivered.append(change)
        self._wake()

    # ── taking over ──────────────────────────────────────────────────────────────────────────

    def _take_due(self) -> None:
        now = self._clock.now()
        here = [held for held in self._due if self._by_role.get(held.role.name) is held]
        self._due = [held for held in here if held.retry_at > now]
        due = [held for held in here if held.retry_at <= now]
        for _, of_session in itertools.groupby(due, lambda held: held.cursor.session):
            group = list(of_session)
            for first in range(0, len(group), MAX_TAKEN_AT_ONCE):
                batch = group[first : first + MAX_TAKEN_AT_ONCE]
                self._request_threads.submit(partial(self._take, batch))

    def _take(self, batch: list[HeldPartition[R]]) -> None:
        """Take over the cursors of a batch, on a request thread.

        No other thread uses these cursors until the outcome is posted.
        """
        error: Exception | None = None
        try:
            take_over(self.topic.etcd, [held.cursor for held in batch])
        except Exception as failed:
            error = failed
        self._post(partial(self._after_take, batch, error))

    def _after_take(self, batch: list[HeldPartition[R]], error: Exception | None) -> None:
        for held in batch:
            if self._by_role.get(held.role.name) is not held or not held.role.is_held:
                continue  # lost meanwhile
            if held.cursor.is_taken:
                held.state = HeldPartitionState.READY
                self._deliver((held, True))
            elif held.cursor.over is not None:
                self._deliver(held.cursor.over)
            elif isinstance(error, RinkError):
                self._retry(held, error)
            elif error is not None:
                raise error  # unexpected: `_run` reports it

    def _retry(self, held: HeldPartition[R], error: RinkError) -> None:
        held.failures += 1
        pause = backoff(held.failures, held.role.name)
        held.retry_at = self._clock.now() + pause
        self._due.append(held)
        place = held.cursor.place
        log.warning("%s: taking over failed, retrying in %.1f s: %s", place, pause, error)
