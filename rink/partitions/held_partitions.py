"""The partitions that are here, each from its grant to its release: what both faces share.

One thread reads what the tracker has to tell of roles, and what users release; it moves the lanes
and never waits for etcd. Takes run on threads of their own, so one that hangs delays neither a
revocation nor, but for those it is sent with, another partition.

    taking ─ its offset was taken over → ready ─ the user asks for changes → told ─ lost → revoked
    taking, ready ─ lost → let go of at once: nobody has heard of it
    told ─ the user lets go, though it is not lost → taking, anew
    revoked ─ the user lets go → the role is let go of, for whoever is next
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

TAKEN_AT_ONCE = 32
"""How many partitions one transaction takes over: etcd takes 128 operations, and 1.5 MB."""


class HeldPartitionState(enum.Enum):
    """What has become of a partition here."""

    TAKING = "taking"
    READY = "ready"
    TOLD = "told"
    REVOKED = "revoked"


@attrs.define(eq=False)
class HeldPartition(Generic[R]):
    """One partition under one grant. Its state is changed with the lock of `Lanes`.

    `committing` is whatever keeps commits of it apart: each face waits in its own way. `lost` is
    made when it is first asked for. The role's own signal does not do: a lane that is released
    unlost is followed by another under the same grant.
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
    def is_users(self) -> bool:
        """Return whether the user works on it, and has not released it."""
        return (
            self.state in {HeldPartitionState.TOLD, HeldPartitionState.REVOKED}
            and not self.is_released
        )


@attrs.frozen
class Topic:
    """What is consumed, and by which member."""

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
            record = engine.node.view.members.get(name)  # of the grant, unless it is lost again
        key, own = self.keys.partition(partition), self.group_keys.member(name)
        place = OffsetPlace(self.name, partition, self.partitions, key, engine.group, name, own)
        return Cursor(place, token, record.create_revision if record else 0)


def take_over(etcd: Etcd, cursors: Sequence[Cursor]) -> None:
    """Take over offsets, all of one session.

    Each cursor has been taken or is over then; where neither is so, the session is lost. A
    transaction that etcd refuses for its size is halved until it passes.

    Raises:
        EtcdError: there was no answer, or etcd refuses a single cursor; to be called again.
    """
    left = [cursor for cursor in cursors if not cursor.is_taken and cursor.over is None]
    while left:
        asked = txn(left, [cursor.next_of_take() for cursor in left])
        try:
            result = etcd.txn(asked.compare, asked.then, asked.otherwise)
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
        record, *found = result.results
        if not record or record[0].create_revision != left[0].session:
            return  # every role is lost, or about to be
        for cursor, kvs in zip(left, found, strict=True):
            cursor.found(next(iter(kvs), None))
        left = [cursor for cursor in left if cursor.over is None]


class Lanes(Generic[R]):
    """Every partition of a topic, as far as it is here.

    Args:
        topic: what is consumed.
        role_class: of the face.
        assignment_class: of the face; made of this and a lane.
        make_lock: makes what keeps two commits of one partition apart.
        wake: called on any thread when there is a change to take, or nothing more will come.
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
        self._lanes: dict[str, HeldPartition[R]] = {}
        self._untold: collections.deque[tuple[HeldPartition[R], bool] | Exception] = (
            collections.deque()
        )
        self._due: list[HeldPartition[R]] = []  # to be taken over
        self._is_woken = False
        self._is_closed = False
        self._partition_of = {
            role_of(topic.name, number): number for number in range(topic.partitions)
        }
        names = list(self._partition_of)
        self._mailbox: Mailbox[Callable[[], object]] | None = None
        self._calls = RequestThreads(self._clock)
        self._tracker = Tracker(topic.engine, role_class, names, self._wake_up)

    # ── for the user's threads ───────────────────────────────────────────────────────────────

    def refuse_fork(self) -> None:
        """Raise in a forked child: nothing is assigned there."""
        if self.topic.engine.forked:
            raise ForkedProcessError(
                f"this consumer of topic {self.topic.name!r} belongs to the parent process; join "
                "in this process instead"
            )

    def start(self) -> None:
        """Ask for every partition."""
        mailbox = self._mailbox = self._clock.mailbox()
        self._tracker.follow(True)
        name = f"rink-partitions-{self.topic.name}"
        threading.Thread(target=self._run, args=(mailbox,), name=name, daemon=True).start()
        self._tracker.start()

    def close(self) -> None:
        """Release everything, and ask for nothing any more.

        In a forked child it does nothing.
        """
        if self.topic.engine.forked:
            return
        with self._lock:
            for lane in self._lanes.values():
                lane.is_released = True
            self._is_closed = True  # whatever is told from now on, nobody hears
        self._tracker.close()

    def take_change(self) -> tuple[HeldPartition[R], bool] | None:
        """Return the next change: a lane, and whether it is assigned.

        None where there is nothing now.

        Raises:
            RinkError: a partition that is here cannot be worked on.
        """
        with self._lock:
            if not self._untold or self._is_closed:
                return None
            change = self._untold.popleft()
            if isinstance(change, Exception):
                raise change
            lane, is_assigned = change
            if is_assigned:
                lane.state = HeldPartitionState.TOLD
            return change

    def told(self) -> dict[int, HeldPartition[R]]:
        """Return the lanes that the user has not released, by partition."""
        with self._lock:
            lanes = list(self._lanes.values())
        return {one.partition: one for one in lanes if one.is_users}

    def find(self, partition: int) -> HeldPartition[R] | None:
        """Return the lane of a partition that the user has not released.

        None where the user does not work on it.
        """
        lane = self._lanes.get(role_of(self.topic.name, partition))
        return lane if lane is not None and lane.is_users else None

    def lost(self, lane: HeldPartition[R]) -> Signal:
        """Return what is set when a lane's role is lost, or the lane is released."""
        of_role = lane.role._signal()  # noqa: SLF001 - a friend of the handle
        with self._lock:
            is_new = lane.lost is None
            signal = lane.lost = lane.lost or Signal(self._clock)
        if is_new:
            of_role.then(signal.set)
        if lane.is_released:  # looked at only now: whoever releases it meanwhile sees the signal
            signal.set()
            of_role.forget(signal.set)
        return signal

    def release(self, lane: HeldPartition[R]) -> None:
        """Let go of a lane; twice does nothing, and so does a forked child."""
        if not lane.is_released and not self.topic.engine.forked:
            lane.is_released = True
            if lane.lost is not None:
                lane.lost.set()
                lane.role._handle.lost.forget(lane.lost.set)  # noqa: SLF001 - a friend
            self._post(partial(self._released, lane))

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
            self._look()  # at what came before the end
        except Exception as error:
            log.critical("partitions of %r fail", self.topic.name, exc_info=True)
            self._tell(error)  # whoever hears of it leaves the `with`, which lets go of everything
        finally:
            mailbox.close()
            self._calls.close()
            self.is_over = True
            self._wake()

    def _retry_at(self) -> float | None:
        return min((lane.retry_at for lane in self._due), default=None)

    def _look(self) -> None:
        self._is_woken = False  # first: what comes from now on is looked at again
        while (change := self._tracker.take()) is not None:
            if change.gained:
                self._begin(change.role)
            else:
                self._lost(change.role)

    def _begin(self, role: R) -> None:
        cursor = self.topic.cursor(self._partition_of[role.name], role.token)
        lane = HeldPartition(role, cursor, self._make_lock())
        lane.assignment = self._assignment_class(self, lane)
        with self._lock:
            self._lanes[role.name] = lane
        if role.is_held:  # else its loss is on the way here, and there may be no record to compare
            self._due.append(lane)

    def _lost(self, role: R) -> None:
        with self._lock:
            lane = self._lanes[role.name]
            is_known = lane.state is HeldPartitionState.TOLD
            if is_known:
                lane.state = HeldPartitionState.REVOKED
                self._untold.append((lane, False))
            elif lane.state is HeldPartitionState.READY:
                self._untold.remove((lane, True))
        if is_known:
            self._wake()
        if not is_known or lane.is_released:
            self._let_go(lane)

    def _released(self, lane: HeldPartition[R]) -> None:
        if self._lanes.get(lane.role.name) is not lane:
            return
        if lane.state is HeldPartitionState.REVOKED:
            self._let_go(lane)
        elif lane.role.is_held:
            self._begin(lane.role)
        # else its loss is on the way here, and finds it released

    def _let_go(self, lane: HeldPartition[R]) -> None:
        with self._lock:
            del self._lanes[lane.role.name]
        self._tracker.done(lane.role)

    def _tell(self, change: tuple[HeldPartition[R], bool] | Exception) -> None:
        with self._lock:
            self._untold.append(change)
        self._wake()

    # ── taking over ──────────────────────────────────────────────────────────────────────────

    def _take_due(self) -> None:
        now = self._clock.now()
        here = [lane for lane in self._due if self._lanes.get(lane.role.name) is lane]
        self._due = [lane for lane in here if lane.retry_at > now]
        due = [lane for lane in here if lane.retry_at <= now]
        for _, of_session in itertools.groupby(due, lambda lane: lane.cursor.session):
            lanes = list(of_session)
            for first in range(0, len(lanes), TAKEN_AT_ONCE):
                batch = lanes[first : first + TAKEN_AT_ONCE]
                self._calls.submit(partial(self._take, batch))

    def _take(self, batch: list[HeldPartition[R]]) -> None:
        """Take the partition's cursor on a thread of `calls`.

        Until it posts its outcome the cursors are its own.
        """
        error: Exception | None = None
        try:
            take_over(self.topic.etcd, [lane.cursor for lane in batch])
        except Exception as failed:
            error = failed
        self._post(partial(self._took, batch, error))

    def _took(self, batch: list[HeldPartition[R]], error: Exception | None) -> None:
        for lane in batch:
            if self._lanes.get(lane.role.name) is not lane or not lane.role.is_held:
                continue  # lost meanwhile
            if lane.cursor.is_taken:
                lane.state = HeldPartitionState.READY
                self._tell((lane, True))
            elif lane.cursor.over is not None:
                self._tell(lane.cursor.over)
            elif isinstance(error, RinkError):
                self._retry(lane, error)
            elif error is not None:
                raise error  # nobody expected it: see _run

    def _retry(self, lane: HeldPartition[R], error: RinkError) -> None:
        lane.failures += 1
        pause = backoff(lane.failures, lane.role.name)
        lane.retry_at = self._clock.now() + pause
        self._due.append(lane)
        log.warning("%s is not taken over yet: %s", lane.cursor.place, error)
