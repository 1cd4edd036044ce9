"""Share the code of both faces of a consumer; it never waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

import attrs

from rink.arguments import check_count
from rink.base_rink import BaseRink
from rink.core import schemes
from rink.core.keys import Keys, OffsetKeys, check_name
from rink.errors import ClosedError, ConfigError, UsageError
from rink.etcd.api import KeyValue
from rink.partitions import stored
from rink.partitions.cursor import check_partitions
from rink.partitions.held_partitions import HeldPartition, HeldPartitions, HeldPartitionState, Topic
from rink.partitions.table import PartitionRow, rows
from rink.roles import BaseRole

R = TypeVar("R", bound=BaseRole)
A = TypeVar("A", bound="BaseAssignment[Any]")
A_co = TypeVar("A_co", bound="BaseAssignment[Any]", covariant=True)


class BaseAssignment(Generic[R]):
    """Work on a partition, from its committed offset and under its token.

    When it is lost, finish, commit, and `release()` it, or leave its `with`. No other member has it
    before that, unless the `grace` of the Rink is over. A partition that is released without a loss
    is assigned to this member again, from its committed offset. Use that to give up half way.
    """

    __slots__ = ("_held", "_held_partitions")

    def __init__(self, held_partitions: HeldPartitions[R], held: HeldPartition[R]) -> None:
        self._held_partitions = held_partitions
        self._held = held

    @property
    def partition(self) -> int:
        """Return the partition's number, from 0 on."""
        return self._held.partition

    @property
    def offset(self) -> int:
        """Return the committed offset, or 0 if there is none.

        Begin there. The next owner begins there, too.
        """
        return self._held.cursor.offset

    @property
    def token(self) -> int:
        """Return the fencing token.

        It is greater than the token of every earlier holder. Pass it on with your writes.
        """
        return self._held.cursor.token

    @property
    def role(self) -> R:
        """Return the partition's role."""
        return self._held.role

    @property
    def is_held(self) -> bool:
        """Return whether the partition is held now, by the current deadline."""
        return not self._held.is_released and self._held.role.is_held

    def release(self) -> None:
        """Release the partition; commit first. A second call does nothing."""
        self._held_partitions.release(self._held)

    def _check(self, offset: object) -> int:
        """Return an offset, or raise if it cannot be committed."""
        self._held_partitions.refuse_fork()
        if self._held.is_released:
            raise self._held.cursor.lost("it was released here")
        return stored.check_offset(offset)

    def __enter__(self) -> Self:
        self._held_partitions.refuse_fork()
        if self._held.is_released:
            raise UsageError(
                f"partition {self._held.role.name!r} was released before this `with`: its next "
                "assignment comes as a change"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        held = self._held
        is_lost = held.state is HeldPartitionState.REVOKED
        state = "released" if held.is_released else "lost" if is_lost else "held"
        name = f"{type(self).__name__} {held.role.name!r}"
        return f"<{name} offset={self.offset} token={self.token} {state}>"


@attrs.frozen
class PartitionChange(Generic[A_co]):
    """Report that a partition was assigned here, or lost.

    The change at the loss has the same `assignment`.
    """

    assignment: A_co
    assigned: bool

    @property
    def revoked(self) -> bool:
        """Return whether the partition was lost.

        Then finish, commit, and release the assignment.
        """
        return not self.assigned

    @property
    def partition(self) -> int:
        """Return the partition's number."""
        return self.assignment.partition


class BaseConsumer(Generic[R, A]):
    """Consume the partitions of a topic that are assigned to this member.

    Each partition is a role, `{topic}/{number}`, and has one consumer in the group. Its offset
    moves with it. Iterate to get each assignment and revocation.

    Args:
        r: a Rink that has joined, with `scheme="balanced:P"` or `scheme="first:…|balanced:P"`,
            where P is `partitions`.
        topic: any name. A process may have one consumer for each topic of a group.
        partitions: the number of partitions. To change it, use another topic name, since offsets
            mean nothing for another number.

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
        self._held_partitions: HeldPartitions[R] | None = None
        check_name("role", f"{topic}/{self.partitions - 1}")  # the longest of its roles
        scheme, own = f"balanced:{partitions}", r._settings.schemes  # noqa: SLF001 - a friend
        if partitions not in map(schemes.partitions_of, own):
            raise ConfigError(
                f"topic {topic!r} has partitions={partitions}, which takes scheme {scheme!r}, and "
                f"this member of group {r.group!r} follows {', '.join(own)}: write "
                f"Rink(session, {r.group!r}, scheme={scheme!r}), in all members"
            )

    @property
    def assigned(self) -> Mapping[int, A]:
        """Return the present assignments, by partition.

        Each was returned by a change, and is neither lost nor released.
        """
        held_partitions = self._open.delivered() if self._held_partitions else {}
        return {
            number: held.assignment for number, held in held_partitions.items() if held.role.is_held
        }

    # ── code for the faces ───────────────────────────────────────────────────────────────────

    @property
    def _topic(self) -> Topic:
        """Return the topic of this member, or raise if the group is not joined."""
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
        """Return the topic; raise if the scheme of the group does not fit it."""
        topic, scheme, version = self._topic, f"balanced:{self.partitions}", self._rink.version
        if self._held_partitions is not None:
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

    def _begin(self, topic: Topic, kvs: Iterable[KeyValue], *how: Any) -> None:
        """Check the committed offsets, and request every partition."""
        self._read(kvs)
        role_class = self._rink._role_class  # noqa: SLF001 - a friend
        self._held_partitions = HeldPartitions(topic, role_class, self._assignment_class, *how)
        try:
            self._held_partitions.start()
        except BaseException:  # Ctrl-C: withdraw all requests
            self._held_partitions.close()
            raise

    def _close(self) -> None:
        if self._held_partitions is not None:
            self._held_partitions.close()

    @property
    def _open(self) -> HeldPartitions[R]:
        if self._held_partitions is None:
            raise ClosedError(f"consume topic {self.topic!r} inside the consumer's `with`")
        self._held_partitions.refuse_fork()
        return self._held_partitions

    def _take_change(self, held_partitions: HeldPartitions[R]) -> PartitionChange[A] | None:
        change = held_partitions.take_change()
        if change is None:
            return None
        held, is_assigned = change
        return PartitionChange(held.assignment, is_assigned)

    def _assignment(self, partition: int) -> A:
        held_partitions = self._open
        if partition not in range(self.partitions):
            text = f"topic {self.topic!r} has partitions 0 to {self.partitions - 1}"
            raise UsageError(f"{text}, and not {partition!r}")
        held = held_partitions.find(partition)
        if held is None:
            raise held_partitions.topic.cursor(partition, 0).lost(
                "no change has assigned it, or it was released; iterate the consumer for changes"
            )
        assignment: A = held.assignment
        return assignment

    def _rows(self, kvs: Iterable[KeyValue]) -> tuple[PartitionRow, ...]:
        values, keys = self._read(kvs), self._topic.keys
        numbers = range(self.partitions)
        by_number = {n: values[key] for n in numbers if (key := keys.partition(n)) in values}
        return rows(self._rink.status(), self.topic, self.partitions, by_number)

    def _read(self, kvs: Iterable[KeyValue]) -> dict[bytes, stored.Stored]:
        """Return the value of each key, or raise for the first bad value."""
        values = {kv.key: stored.read(kv.key, kv.value) for kv in kvs}
        for key, value in values.items():
            check_partitions(self.topic, self.partitions, key, value)
        return values

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic!r} of {self._rink!r}>"
