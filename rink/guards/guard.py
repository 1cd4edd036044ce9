"""Define the rules and the interface of all guards.

- After `raise_fence` (or `begin`), the guard refuses every lower token of that name.
- A part is written in one step with its mark, under the token that is valid at that moment, or it
  is not written at all.
- A part is identified by (query, batch number, part). Marks keep the greatest batch number for each
  part of a query.
- Guards are pickled to the processes that write parts. Connections are not: each process makes its
  own.

Deliberately absent: retries. The caller may repeat every call, and decides for how long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

from rink.arguments import check_count
from rink.errors import ConfigError, StateError, UsageError
from rink.guards.values import Batch, Fence

S = TypeVar("S")


class Part(ABC, Generic[S]):
    """Write a part of a batch, as a context manager that yields the step.

    `with` yields None if this part was written before. Leaving it without an exception writes the
    step and the mark together. Leaving it with an exception writes nothing. Enter a Part only once.

    Attributes:
        result: a small value for `Guard.finish`, which can be pickled. It is set when the part is
            left. The step cannot hold it: a part that was written before has no step, and a
            database's step is SQLAlchemy's own connection.
        written: the newest batch of the query with which this part was marked when it was entered.
            None if there is none.
    """

    def __init__(self, fence: Fence, batch: Batch, number: int) -> None:
        check_told(fence, batch)
        self.fence, self.batch = fence, batch
        self.number = check_count("part", number, least=0)
        if number >= batch.parts:
            raise ConfigError(
                f"part {number} of {batch.parts}: parts are numbered from 0 to {batch.parts - 1}"
            )
        self.result: Any = None
        self.written: int | None = None
        self._entered = False
        self._step: S | None = None

    def __enter__(self) -> S | None:
        if self._entered:
            raise UsageError("this part was entered before: ask the guard for a new one")
        self._entered = True
        self._step = self._open()
        return self._step

    def _is_written(self) -> bool:
        return self.written is not None and self.written >= self.batch.number

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        step, self._step = self._step, None
        if step is None:
            return
        if error is None:
            self.result = self._commit(step)
        else:
            self._abandon(step, error)

    def _before(self, seen: int | None, place: str) -> None:
        """Raise unless the store's token, `seen`, is the fence's token."""
        if seen is not None and seen > self.fence.token:
            raise self.fence.stale(seen, place)
        if seen is None or seen < self.fence.token:
            raise not_begun(self.fence, seen, place)

    @abstractmethod
    def _open(self) -> S | None: ...

    @abstractmethod
    def _commit(self, step: S) -> Any: ...

    @abstractmethod
    def _abandon(self, step: S, error: BaseException) -> None: ...


class Guard(ABC):
    """Accept writes under the newest token only, and each part once.

    A guard may be pickled, and threads may share it. The coordinating process calls `raise_fence`
    once it has a token. Then for each batch it calls `begin`, every `part` (in any process and in
    any order), and `finish` with the results of all parts. Each call may be repeated.
    """

    @abstractmethod
    def raise_fence(self, fence: Fence) -> None:
        """Refuse all lower tokens of this name from now on.

        Repeating the call with the same token changes nothing.

        Raises:
            StaleToken: the guard has seen a greater token.
        """

    @abstractmethod
    def begin(self, fence: Fence, batch: Batch) -> None:
        """Begin a batch.

        Raise the fence if needed, and check the number of parts of the query.

        Raises:
            StaleToken: the guard has seen a greater token.
            StateError: this query's batches were cut into another number of parts.
        """

    @abstractmethod
    def part(self, fence: Fence, batch: Batch, number: int) -> Part[Any]:
        """Return part `number`, 0 to `batch.parts` - 1, for `with`.

        Entering and leaving it raise StaleToken if the guard has seen a greater token, and
        StateError if there was no `begin` under this token.
        """

    @abstractmethod
    def finish(self, fence: Fence, batch: Batch, results: Sequence[Any]) -> None:
        """End a batch, with the `result` of each of its parts.

        A guard that publishes whole batches, such as ParquetGuard, publishes this one now.

        Raises:
            StaleToken: the guard has seen a greater token. Guards that publish each part when it
                is left have published the parts nevertheless.
        """

    @abstractmethod
    def close(self) -> None:
        """Close this process's connections. A later call makes new ones."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_told(fence: object, batch: object = None) -> None:
    """Raise ConfigError unless these are a fence and a batch."""
    if not isinstance(fence, Fence):
        raise ConfigError(f"fence must be a Fence, such as Fence.of(role), not {fence!r}")
    if batch is not None and not isinstance(batch, Batch):
        raise ConfigError(f"batch must be a Batch, not {batch!r}")


def not_begun(fence: Fence, seen: int | None, place: str) -> StateError:
    """Return the error for a part whose token the store has not seen."""
    known = "no token" if seen is None else f"token {seen}"
    return StateError(
        f"{place} knows {known} of {fence.name!r}, but this part has {fence.token}: call "
        "begin(fence, batch) first. If it was called, the store was rolled back (restored, or "
        "failed over): begin the batch anew",
        key=place,
    )


def cut_otherwise(batch: Batch, stored: int, place: str) -> StateError:
    """Return the error for a batch with another number of parts."""
    parts = "1 part" if stored == 1 else f"{stored} parts"
    return StateError(
        f"{place}: query {batch.query!r} has {parts}, but this batch is cut into {batch.parts}, so "
        f"a written part could be written again. Cut it into {parts}, or begin a new query (in "
        "Spark: a new checkpoint)",
        key=place,
    )
