"""What a guard is, whatever it guards.

Rules that hold for all of them:
- A token counts from `raise_fence` (or `begin`) on, and every lower one of that name is refused
  from then on.
- A part is written in one step with its mark, under the token that counts at that very moment, or
  not at all.
- Parts are told apart by (query, batch number, part): marks keep the greatest number for each part
  of a query.
- Guards are pickled to where parts are written. Connections are not: each process makes its own.

Deliberately absent: retries. All calls may be repeated, and who repeats knows for how long.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from rink.arguments import check_count
from rink.errors import ConfigError, StateError, UsageError
from rink.guards.values import Batch, Fence

S = TypeVar("S")


class Part(ABC, Generic[S]):
    """One part of one batch: a context manager that gives the guard's step, or None where this part
    was written before.

    Leaving without an exception writes what the step was told, and the mark, in one piece; with an
    exception nothing is written. A Part is entered once.

    Attributes:
        result: what `Guard.finish` is to be told of this part, once it was left: a small value that
            can be pickled. It stands here and not on the step, since there is no step for a part
            that was written before, and a database's step is SQLAlchemy's own connection.
        written: the newest batch of the query of which this part is written, as it was when it was
            entered; None where there is none.
    """

    def __init__(self, fence: Fence, batch: Batch, number: int) -> None:
        check_told(fence, batch)
        self.fence, self.batch = fence, batch
        self.number = check_count("part", number, least=0)
        if number >= batch.parts:
            raise ConfigError(
                f"part {number} of {batch.parts}: they are numbered from 0 to {batch.parts - 1}"
            )
        self.result: Any = None
        self.written: int | None = None
        self._entered = False
        self._step: S | None = None

    def __enter__(self) -> S | None:
        if self._entered:
            raise UsageError("this part was entered before: ask the guard for it anew")
        self._entered = True
        self._step = self._open()
        return self._step

    def _is_written(self) -> bool:
        return self.written is not None and self.written >= self.batch.number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        step, self._step = self._step, None
        if step is None:
            return
        if error is None:
            self.result = self._commit(step)
        else:
            self._abandon(step, error)

    def _before(self, seen: int | None, place: str) -> None:
        """Refuse a token other than the one that counts."""
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
    """Accepts writes under the newest token only, and each part of each batch once. May be pickled,
    and used by threads.

    Who decides what runs calls `raise_fence` once it has a token, then for each batch: `begin`;
    every `part`, anywhere and in any order; `finish` with the results of all of them. All of it may
    be repeated after a failure.
    """

    @abstractmethod
    def raise_fence(self, fence: Fence) -> None:
        """Refuse all lower tokens of this name from now on. The same token again changes nothing.

        Raises:
            StaleToken: a greater one has been seen.
        """

    @abstractmethod
    def begin(self, fence: Fence, batch: Batch) -> None:
        """Begin a batch: raises the fence if it was not, and checks into how many parts the query
        is cut.

        Raises:
            StaleToken: a greater token has been seen.
            StateError: this query's batches were cut into another number of parts.
        """

    @abstractmethod
    def part(self, fence: Fence, batch: Batch, number: int) -> Part[Any]:
        """Return the part of that number, 0 to `batch.parts` - 1, to be entered with `with`.

        Entering and leaving it raise StaleToken if a greater token has been seen, and StateError if
        there was no `begin` under this one.
        """

    @abstractmethod
    def finish(self, fence: Fence, batch: Batch, results: Sequence[Any]) -> None:
        """End a batch, with the `result` of each of its parts: where a guard publishes a batch as a
        whole, it does now.

        Raises:
            StaleToken: a greater token has been seen. Where parts publish themselves they are
                published all the same.
        """

    @abstractmethod
    def close(self) -> None:
        """Close this process's connections; the guard makes new ones if it is used again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_told(fence: object, batch: object = None) -> None:
    """Refuse what is no fence or no batch."""
    if not isinstance(fence, Fence):
        raise ConfigError(f"fence must be a Fence, such as Fence.of(role), not {fence!r}")
    if batch is not None and not isinstance(batch, Batch):
        raise ConfigError(f"batch must be a Batch, not {batch!r}")


def not_begun(fence: Fence, seen: int | None, place: str) -> StateError:
    """Return the error for a part under a token that the store has not seen."""
    known = "no token" if seen is None else f"token {seen}"
    return StateError(
        f"{place} knows {known} of {fence.name!r}, and this part has {fence.token}: begin(fence, "
        "batch) comes first. If it did, what lies there was rolled back (restored, or failed "
        "over): begin the batch anew",
        key=place,
    )


def cut_otherwise(batch: Batch, stored: int, place: str) -> StateError:
    """Return the error for a batch that is cut into another number of parts than the query's first."""
    return StateError(
        f"{place}: query {batch.query!r} has {stored} parts, and this batch is cut into "
        f"{batch.parts}: a part that was written could be written again. Restart with {stored} "
        "parts, or with a new checkpoint",
        key=place,
    )
