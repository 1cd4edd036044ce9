"""Deliver the events of one partition to the function of its processor.

Only the iteration that began last gets events. Asking for the next events marks the current ones as
done. So a second iteration would mark events as done that the first one still processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Generic, TypeVar

from rink.errors import UsageError
from rink.streams.consumer.buffer import StreamEntry
from rink.streams.event import Event

if TYPE_CHECKING:
    from rink.streams.consumer.owner import GrantOwner

R_co = TypeVar("R_co", covariant=True)


class Delivery(Generic[R_co]):
    """Deliver the events of an owner to its processor, through middleware."""

    def __init__(self, owner: GrantOwner[R_co]) -> None:
        self.owner = owner
        self._around: AsyncExitStack | None = None  # the middleware of the current batch
        self._iteration: object = None  # the iteration that began last
        # The last error of middleware, unless the function has continued since.
        self._failure: Exception | None = None

    def begin(self, iteration: object) -> object:
        """Begin an iteration, and end any other."""
        self._iteration = iteration
        return iteration

    def next_now(self, iteration: object) -> tuple[StreamEntry, R_co] | None:
        """Return the next entry and record, or None if that may need a wait."""
        return self.owner.next_now() if iteration is self._iteration else None

    async def next(self, iteration: object, count: int, within: float = 0.0) -> list[Event[R_co]]:
        """Return the next events of an iteration, or [] at the end.

        Raises:
            UsageError: another iteration has begun since.
        """
        if iteration is not self._iteration:
            raise UsageError(
                f"partition {self.owner.place.number}: another iteration over these events has "
                "begun. Asking for an event marks the previous event as done, so iterate in one "
                "place only, and hand the events out from there"
            )
        if self._failure is not None:  # the function has caught it, so the batch comes again
            self._failure = None
            self.owner.buffer.put_back()
        await self._leave_middleware()
        while entries := await self.owner.next(count, within):
            batch = [Event(entry.id, record) for entry, record in entries]
            if self.owner.processor.middleware:
                batch = await self._surround(batch)
            if batch:
                return batch
            await self._leave_middleware()  # middleware has emptied the batch
        return []

    async def fetch(self, count: int) -> list[Event[R_co]]:
        """Return up to `count` events for a thread that takes them one by one."""
        one_by_one = self.owner.processor.commits_by_hand or self.owner.processor.middleware
        return await self.next(self.begin(self), 1 if one_by_one else count)

    async def hand_back(self, finished: int) -> None:
        """Mark the first `finished` events as done, and put the others back."""
        self.finish(finished)
        self.owner.buffer.put_back()

    def finish(self, count: int | None) -> None:
        """Mark the first `count` in-flight events as done, or all.

        With manual commits this does nothing, since only commits mark events as done.
        """
        if not self.owner.processor.commits_by_hand:
            self.owner.finish(count)

    def raise_failure(self) -> None:
        """Raise the last error of middleware, even if the function caught it.

        The batch is not done then.
        """
        if self._failure is not None:
            raise self._failure

    async def end(self, error: BaseException | None) -> None:
        """Leave the middleware of the last batch when the function has ended."""
        if self._around is not None:
            around, self._around = self._around, None
            if error is None:
                await around.aclose()
            else:  # the failure policy decides, even if middleware swallows or replaces the error
                with contextlib.suppress(Exception):
                    await around.__aexit__(type(error), error, error.__traceback__)

    @contextlib.contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._failure = error
            raise

    async def _leave_middleware(self) -> None:
        if self._around is not None:
            around, self._around = self._around, None
            with self._noting_failure():
                await around.aclose()

    async def _surround(self, batch: list[Event[R_co]]) -> list[Event[R_co]]:
        self._around = AsyncExitStack()
        for middleware in self.owner.processor.middleware:
            with self._noting_failure():
                changed = await self._around.enter_async_context(middleware(batch))
            if isinstance(changed, list):
                batch = changed
        return batch
