"""Register a streaming query as a group of its stream.

Trimming waits for the group. One reader at a time advances it.
"""

from __future__ import annotations

import getpass
import logging
import os
import secrets
import shlex
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import attrs

from rink.core.keys import check_name
from rink.errors import StaleToken, StateError
from rink.redis.reply_text import text
from rink.spark.options import StreamPlace
from rink.spark.redis_connection import RedisConnection, clear_after
from rink.spark.source.offsets import Offsets
from rink.spark.times import shown
from rink.streams.store import entry_ids
from rink.streams.store.keys import OF_SPARK, PartitionNames
from rink.streams.store.values import PartitionBounds
from rink.streams.stream import partition_bounds

log = logging.getLogger("rink.spark")


class Group:
    """Change the state of one query in Redis, in all partitions of a stream.

    Operators see the name as `spark/NAME`. The token is 0 without a role. If the group is strict,
    unread events that are gone are an error.
    """

    def __init__(
        self, place: StreamPlace, redis: RedisConnection, name: str, token: int, *, strict: bool
    ) -> None:
        self.name = group_name(name)
        self._place = place
        self._redis = redis
        self._token = token
        self._strict = strict
        user, host = getpass.getuser(), socket.gethostname()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._who = f"process {os.getpid()} of {user} on {host}, since {now}"
        self._id = secrets.token_hex(8)
        declared = place.declared()
        self._bounds = PartitionBounds(0) if declared is None else partition_bounds(declared)
        self._run = ""
        self._processed: Offsets = {}
        self._begun: list[int] = []

    @property
    def has_entered(self) -> bool:
        """Return whether this reader has entered, which ends earlier readers."""
        return self._run != ""

    def is_registered(self, numbers: Sequence[int]) -> bool:
        """Return whether all these partitions know the group."""
        keys = [self._names(number).offsets for number in numbers]
        client = self._redis.client
        return all(
            self._redis.repeated(partial(client.hexists, key, self.name), key) for key in keys
        )

    def begin(self, edges: Mapping[int, str]) -> Offsets:
        """Register a query that has no checkpoint yet.

        Each partition begins at its edge: earliest, latest or an id. The call may be repeated.

        Raises:
            StaleToken: the group has seen a greater token.
            StateError: a query with another checkpoint has this name, or events after an id are
                gone.
        """
        # Check all partitions first, so that a refused start registers none of them. Otherwise the
        # next start would begin at the registered place, even if it has other starting offsets.
        looked = self._begin(edges, dry_run=True)
        self._begun += [
            n for n, (status, *rest) in looked.items() if status != b"ok" or not rest[1]
        ]
        with self.withdrawn_on_error():
            answers = self._begin(edges, dry_run=False)
        return {number: text(answer[1]) for number, answer in answers.items()}

    @contextmanager
    def withdrawn_on_error(self) -> Iterator[None]:
        """Undo the registration of a start that fails before its first batch.

        A later failure keeps it, since the checkpoint has the batch and a restart continues it.
        """
        try:
            yield
        except Exception as error:
            clear_after(error, self._withdraw)
            raise

    def has_begun(self) -> None:
        """Keep the registration from now on, since Spark may plan a batch."""
        self._begun = []

    def _withdraw(self) -> None:
        begun, self._begun = self._begun, []
        for number in begun:
            # Partition 0 comes first. If another reader owns it by now, that reader owns or will
            # own the other partitions, too.
            answer = self._redis.run(
                "source/withdraw", self._keys(number), group=self.name, by=self._id, run=self._run
            )
            if answer[0] == b"other":
                return

    def _begin(self, edges: Mapping[int, str], *, dry_run: bool) -> dict[int, Any]:
        args = {
            "group": self.name, "token": str(self._token), "strict": self._strict,
            "dry_run": dry_run, "by": self._id,
        }  # fmt: skip
        steps = {n: (self._keys(n), {**args, "start": at}) for n, at in edges.items()}
        answers = self._redis.run_for("source/begin", steps)
        for number, answer in answers.items():
            self._check(number, answer, edges[number])
        return answers

    def follow(self, start: Offsets) -> Offsets:
        """Commit all events up to `start`, and return each partition's last id.

        Raises:
            StaleToken: the group has seen a greater token.
            StateError: another query reads under this name, or unread events are gone.
        """
        if not self.has_entered:
            answer = self._redis.run(
                "source/enter",
                self._keys(0)[:1],
                token=str(self._token),
                who=self._who,
                by=self._id,
            )
            self._check(0, answer)
            self._run = text(answer[1])
        args = {**self._owner_args(), "strict": self._strict}
        steps = {n: (self._keys(n), {**args, "start": at}) for n, at in start.items()}
        answers = self._redis.run_for("source/follow", steps)
        for number, answer in answers.items():
            self._check(number, answer, start[number])
            self._warn(number, start[number], *answer[2:])
        self._processed = dict(start)
        return {number: text(answer[1]) for number, answer in answers.items()}

    def _owner_args(self) -> dict[str, object]:
        """Return the arguments of every script of a reader that has entered."""
        return {
            "group": self.name, "token": str(self._token), "run": self._run,
            "bounds": self._bounds.args,
        }  # fmt: skip

    def advance(self, end: Offsets) -> None:
        """Commit the events up to `end`, which Spark has committed.

        Raises:
            StaleToken: the group has seen a greater token.
        """
        args = self._owner_args()
        changed = {n: at for n, at in end.items() if self._processed.get(n) != at}
        steps = {n: (self._keys(n), {**args, "to": at}) for n, at in changed.items()}
        for number, answer in self._redis.run_for("source/advance", steps).items():
            if text(answer[0]) == "stale":
                self._check(number, answer)
        self._processed.update(changed)

    def removed(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return the number of entries removed before the registration."""
        keys = [self._names(number).at(self.name) for number in numbers]
        client = self._redis.client
        counts = [self._redis.repeated(partial(client.hget, key, "removed"), key) for key in keys]
        return {n: int(count or 0) for n, count in zip(numbers, counts, strict=True)}

    def _keys(self, number: int) -> tuple[str, ...]:
        names = self._names(number)
        return names.at(self.name), *names.keys

    def _names(self, number: int) -> PartitionNames:
        return self._place.names.partition(number)

    def _check(self, number: int, answer: Sequence[Any], start: str = "") -> None:
        at = self._names(number).at(self.name)
        match text(answer[0]):
            case "ok":
                return
            case "stale":
                newer = int(answer[1])
                raise StaleToken(
                    f"group {self.name!r} of {self._place} belongs to a later driver: token "
                    f"{self._token} was refused, since {at!r} has {newer}",
                    role=self.name, token=self._token, newer=newer,
                )  # fmt: skip
            case "used":
                raise StateError(
                    f"group {self.name!r} of {self._place} is in use by a query with another "
                    f"checkpoint (it has read up to {text(answer[1])} in partition {number}; "
                    f"{self._other()}). Give this query another group. If the other query is gone "
                    f"for good, run `{self._forget()}`",
                    key=at,
                )
            case "worker":
                raise StateError(
                    f"group {self.name!r} of {self._place} belongs to a processor of the app: give "
                    "this query another group",
                    key=at,
                )
            case "other":
                raise StateError(
                    f"another query reads {self._place} as group {self.name!r}: {self._other()}. "
                    "This query ends. Each query needs its own group. If one query reads a "
                    "stream twice (for example a union with itself), give each read its own "
                    "option 'group'",
                    key=at,
                )
            case "old":
                raise StateError(self._older(number, start, text(answer[1])), key=at)
        tell_gone(self._place, number, start, EventsGone.of(answer), strict=self._strict)

    def _warn(self, number: int, start: str, gone: Sequence[Any], older: Any) -> None:
        """Warn of gone events or an older checkpoint, and let the run continue."""
        if gone:
            tell_gone(self._place, number, start, EventsGone.of(gone), strict=False)
        elif older:
            log.warning(
                "the checkpoint of a query is older than its group %r in Redis: in partition %d "
                "of %s the query continues after %s, although %s is committed, and reads the "
                "events between again. Was the checkpoint restored from an older state?",
                self.name, number, self._place, start, text(older),
            )  # fmt: skip

    def _older(self, number: int, start: str, offset: str) -> str:
        return (
            f"the checkpoint of this query is older than its group {self.name!r} in Redis: in "
            f"partition {number} of {self._place} it continues after {start}, but the group has "
            f"committed up to {offset}, and events between were trimmed. The checkpoint was "
            "restored from an older state, or belongs to another query. Use the newest "
            f"checkpoint. To begin anew, remove the checkpoint and run `{self._forget()}`. To "
            "continue with the events that "
            'are there: .option("failOnDataLoss", "false")'
        )

    def _forget(self) -> str:
        app = self._place.app or "MODULE:ATTR"
        line = ["rink", "streams", "forget-group", app, self.name, "--stream", self._place.stream]
        return shlex.join(line)

    def _other(self) -> str:
        """Describe the current reader of this group, or return "unknown"."""
        at = self._names(0).at(self.name)
        who = self._redis.repeated(lambda: self._redis.client.hget(at, "who"), at)
        return text(who) or "unknown"


def group_name(name: str) -> str:
    """Return the name of a query's group, `spark/NAME`."""
    return OF_SPARK + check_name("group", name)


@attrs.frozen
class EventsGone:
    """Describe the missing events of a partition, as reported by Redis.

    Attributes:
        why: `trimmed`, or `deleted` by XDEL.
        removed: the number of entries that were ever removed.
        first: the ID of the first remaining entry; "" if there is none.
        deleted: the greatest ID that XDEL has removed.
        last: the last ID that Redis has generated.
    """

    why: str
    removed: int
    first: str
    deleted: str
    last: str

    @classmethod
    def of(cls, answer: Sequence[Any]) -> EventsGone:
        """Read the answer of the Lua function `gone`."""
        _, why, removed, first, deleted, last = map(text, answer)
        return cls(why, int(removed), first, deleted, last)

    def cause(self, start: str) -> str:
        """Return the likely reason why the events are gone."""
        if entry_ids.order(self.last) < entry_ids.order(start.strip("(")):
            return (
                f"the last event that Redis knows is {self.last}, so Redis was restored from an "
                "older state, or emptied"
            )
        if self.why == "deleted":
            return f"XDEL has removed {self.deleted}"
        count = "1 event was" if self.removed == 1 else f"{self.removed} events were"
        left = f"the first one left is {_event(self.first)}" if self.first else "none is left"
        return (
            f"{count} removed, and {left}. All groups had passed them, or "
            'trim="oldest" or an operator removed them, or Redis was restored from an older state'
        )


def tell_gone(
    place: StreamPlace, number: int, start: str, gone: EventsGone | None = None, *, strict: bool
) -> None:
    """Report that events after an id are gone: raise StateError, or log.

    If `start` is "(id", the event with that id is gone, too.
    """
    key = place.names.partition(number).stream
    where = f"from {_event(start[1:])} on" if start.startswith("(") else f"after {start}"
    cause = gone.cause(start) if gone else "they were trimmed while this range was read"
    message = (
        f"events of partition {number} of {place} {where} are gone before they were read (key "
        f"{key!r}): {cause}. To read the events that are there: "
        '.option("failOnDataLoss", "false"). To keep events longer: app.stream(…, keep="7d")'
    )
    if strict:
        raise StateError(message, key=key)
    log.warning("%s", message)


def _event(at: str) -> str:
    """Return an id and its time as text."""
    return f"{at} ({shown(entry_ids.order(at)[0])})"
