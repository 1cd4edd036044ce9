"""What both faces of a `PartitionedConsumer` have in common: everything that does not wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

import attrs

from rink.arguments import check_count
from rink.core import schemes
from rink.core.keys import Keys, OffsetKeys, check_name
from rink.errors import ClosedError, ConfigError, UsageError
from rink.etcd.api import KeyValue
from rink.face import BaseRink
from rink.partitions import stored
from rink.partitions.cursor import check_partitions
from rink.partitions.held_partitions import HeldPartition, HeldPartitionState, Lanes, Topic
from rink.partitions.table import PartitionRow, rows
from rink.roles import BaseRole

R = TypeVar("R", bound=BaseRole)
A = TypeVar("A", bound="BaseAssignment[Any]")
A_co = TypeVar("A_co", bound="BaseAssignment[Any]", covariant=True)


class BaseAssignment(Generic[R]):
    """A partition that is here to be worked on: from its committed offset, under its token.

    When it is lost, finish, commit, and `release()` it, or leave its `with`: nobody else has it
    before, unless the `grace` of the Rink is over. One that is released without having been lost is
    assigned again, from its committed offset, to this member: so does whoever gives up half way.
    """

    __slots__ = ("_lane", "_lanes")

    def __init__(self, lanes: Lanes[R], lane: HeldPartition[R]) -> None:
        self._lanes = lanes
        self._lane = lane

    @property
    def partition(self) -> int:
        """Return the partition's number, from 0 on."""
        return self._lane.partition

    @property
    def offset(self) -> int:
        """Return the committed offset, 0 where there was none.

        Begin there. The next owner begins there, too.
        """
        return self._lane.cursor.offset

    @property
    def token(self) -> int:
        """Return the fencing token.

        It is greater than that of every earlier holder: hand it on with what you write.
        """
        return self._lane.cursor.token

    @property
    def role(self) -> R:
        """Return the role that the partition is."""
        return self._lane.role

    @property
    def is_held(self) -> bool:
        """Return whether the partition is held now.

        The deadline is checked at this moment.
        """
        return not self._lane.is_released and self._lane.role.is_held

    def release(self) -> None:
        """Release the partition; a second call does nothing. Commit before."""
        self._lanes.release(self._lane)

    def _check(self, offset: object) -> int:
        """Return an offset that may be tried to commit."""
        self._lanes.refuse_fork()
        if self._lane.is_released:
            raise self._lane.cursor.lost("it was released here")
        return stored.check_offset(offset)

    def __enter__(self) -> Self:
        self._lanes.refuse_fork()
        if self._lane.is_released:
            raise UsageError(
                f"partition {self._lane.role.name!r} was released before this `with`: its next "
                "assignment comes as a change"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        lane = self._lane
        is_lost = lane.state is HeldPartitionState.REVOKED
        state = "released" if lane.is_released else "lost" if is_lost else "held"
        name = f"{type(self).__name__} {lane.role.name!r}"
        return f"<{name} offset={self.offset} token={self.token} {state}>"


@attrs.frozen
class PartitionChange(Generic[A_co]):
    """One change of what is assigned here; both changes of one assignment bring the same object."""

    assignment: A_co
    assigned: bool

    @property
    def revoked(self) -> bool:
        """Return whether the partition was lost.

        If so: finish, commit, and release the assignment.
        """
        return not self.assigned

    @property
    def partition(self) -> int:
        """Return the partition's number."""
        return self.assignment.partition


class BaseConsumer(Generic[R, A]):
    """A member's part in working through the partitions of a topic.

    Each partition is a role, `{topic}/{number}`, and has one consumer in the group; its offset
    travels with it. Iterate to be told what is assigned here, and what is revoked.

    Args:
        r: a Rink that has joined, with `scheme="balanced:P"` with P equal to
            `partitions`, or with `scheme="first:…|balanced:P"`.
        topic: any name; in one group and one process, one consumer for each topic.
        partitions: how many there are. Offsets of another number mean nothing: to change it, take
            another topic name.

    Raises:
        ConfigError: a setting cannot be used; the message says what to write instead.
    """

    _rink_class: ClassVar[type[Any]]
    _assignment_class: ClassVar[type[Any]]

    def __init__(self, r: BaseRink[R, Any], topic: str, *, partitions: int) -> None:
        if not isinstance(r, self._rink_class):
            face = self._rink_class._face  # noqa: SLF001 - a friend
            raise UsageError(
                f"topic {topic!r}: this PartitionedConsumer takes a {face}.Rink first, not {r!r}"
            )
        self.topic = check_name("topic", topic)
        self.partitions = check_count("partitions", partitions, most=schemes.MAX_PARTITIONS)
        self._rink = r
        self._lanes: Lanes[R] | None = None
        check_name("role", f"{topic}/{self.partitions - 1}")  # the longest of its roles
        scheme, own = f"balanced:{partitions}", r._settings.schemes  # noqa: SLF001 - a friend
        if partitions not in map(schemes.partitions_of, own):
            raise ConfigError(
                f"topic {topic!r} has {partitions} partitions, which take scheme {scheme!r}, and "
                f"this member of group {r.group!r} follows {', '.join(own)}: write "
                f"Rink(session, {r.group!r}, scheme={scheme!r}), in all members"
            )

    @property
    def assigned(self) -> Mapping[int, A]:
        """Return what is assigned here now, by partition.

        It was told by a change, and is not lost or released.
        """
        lanes = self._open.told() if self._lanes else {}
        return {number: lane.assignment for number, lane in lanes.items() if lane.role.is_held}

    # ── what the faces share ─────────────────────────────────────────────────────────────────

    @property
    def _topic(self) -> Topic:
        """Return the topic of this member.

        It raises where the group has not been joined.
        """
        r = self._rink
        engine, session = r._engine, r._session  # noqa: SLF001 - a friend of the Rink
        return Topic(
            self.topic,
            self.partitions,
            engine,
            session.etcd,
            Keys.of(session.prefix, r.group),
            OffsetKeys.of(session.prefix, r.group, self.topic),
        )

    def _check_group(self) -> Topic:
        """Return the topic if the group's scheme is the topic's.

        A group without a version passes, too.
        """
        topic, scheme, version = self._topic, f"balanced:{self.partitions}", self._rink.version
        if self._lanes is not None:
            raise UsageError(f"this consumer of {self.topic!r} was used before: make a new one")
        topic.engine.refuse_own_thread("PartitionedConsumer()")
        if version is not None and schemes.partitions_of(version.scheme) != self.partitions:
            raise ConfigError(
                f"group {self._rink.group!r} follows scheme {version.scheme!r} (version "
                f"{version.number}), not {scheme!r}, which topic {self.topic!r} takes: write "
                f"Rink(…, scheme=[{scheme!r}, {version.scheme!r}]) in all members, and consume "
                "when the group has changed over"
            )
        return topic

    def _begin(self, topic: Topic, found: Iterable[KeyValue], *how: Any) -> None:
        """Look at the offsets that lie there, and want every partition."""
        self._read(found)
        role_class = self._rink._role_class  # noqa: SLF001 - a friend
        self._lanes = Lanes(topic, role_class, self._assignment_class, *how)
        try:
            self._lanes.start()
        except BaseException:  # Ctrl-C: nothing may go on being wanted
            self._lanes.close()
            raise

    def _close(self) -> None:
        if self._lanes is not None:
            self._lanes.close()

    @property
    def _open(self) -> Lanes[R]:
        if self._lanes is None:
            raise ClosedError(f"consume topic {self.topic!r} inside the consumer's `with`")
        self._lanes.refuse_fork()
        return self._lanes

    def _take_change(self, lanes: Lanes[R]) -> PartitionChange[A] | None:
        change = lanes.take_change()
        if change is None:
            return None
        lane, is_assigned = change
        return PartitionChange(lane.assignment, is_assigned)

    def _assignment(self, partition: int) -> A:
        lanes = self._open
        if partition not in range(self.partitions):
            text = f"topic {self.topic!r} has partitions 0 to {self.partitions - 1}"
            raise UsageError(f"{text}, and not {partition!r}")
        lane = lanes.find(partition)
        if lane is None:
            raise lanes.topic.cursor(partition, 0).lost(
                "it was not told as assigned, or was released; iterate the consumer to be told"
            )
        found: A = lane.assignment
        return found

    def _rows(self, found: Iterable[KeyValue]) -> tuple[PartitionRow, ...]:
        values, keys = self._read(found), self._topic.keys
        numbers = range(self.partitions)
        by_number = {n: values[key] for n in numbers if (key := keys.partition(n)) in values}
        return rows(self._rink.status(), self.topic, self.partitions, by_number)

    def _read(self, found: Iterable[KeyValue]) -> dict[bytes, stored.Stored]:
        """Return what lies under each key.

        It raises where a value cannot be read, or has another number of partitions.
        """
        values = {kv.key: stored.read(kv.key, kv.value) for kv in found}
        for key, value in values.items():
            check_partitions(self.topic, self.partitions, key, value)
        return values

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic!r} of {self._rink!r}>"
