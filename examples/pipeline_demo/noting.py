"""Wrap a guard to note its decisions, and to hold it where a mishap hits.

Its decisions are accepted, known and refused parts.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pipeline_demo.here import ACCEPTED, DriverHere
from rink.errors import StaleToken
from rink.guards import Batch, Fence, Guard, Part

ALWAYS = 2**62  # a token that no store ever finds stale


class NotingGuard(Guard):
    """Behave as the guard behind it.

    Args:
        guard: the guard behind it.
        store: its name in the notes.
        here: the settings of the driver, also on its executors.
    """

    def __init__(self, guard: Guard, store: str, here: DriverHere) -> None:
        self.guard = guard
        self.store = store
        self.here = here

    def raise_fence(self, fence: Fence) -> None:
        with self._noted("its fence"):
            self.guard.raise_fence(self._checked_fence(fence))
        self.here.note_fence(fence.token)

    def begin(self, fence: Fence, batch: Batch) -> None:
        self.here.note("batch", store=self.store, number=batch.number, token=fence.token)
        self.here.wait_if_held(f"before-{self.store}", batch=batch.number)
        with self._noted(f"batch {batch.number}"):
            self.guard.begin(*self._checked(fence, batch))

    def part(self, fence: Fence, batch: Batch, number: int) -> "NotingPart":
        return NotingPart(self, fence, batch, number)

    def finish(self, fence: Fence, batch: Batch, results: Sequence[Any]) -> None:
        with self._noted(f"batch {batch.number}"):
            self.guard.finish(*self._checked(fence, batch), results)

    def close(self) -> None:
        self.guard.close()

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        try:
            yield
        except StaleToken as stale:
            self.here.note("refused", store=self.store, written=what, why=str(stale))
            raise

    def _checked_fence(self, fence: Fence) -> Fence:
        return Fence(fence.name, ALWAYS) if self.here.careless else fence

    def _checked(self, fence: Fence, batch: Batch) -> tuple[Fence, Batch]:
        if self.here.careless:  # no fence, and no known batch: each grant is another query
            batch = Batch(f"{batch.query}/{fence.token}", batch.number, batch.parts)
        return self._checked_fence(fence), batch


class NotingPart(Part[Any]):
    """Behave as the part behind it."""

    def __init__(self, noting: NotingGuard, fence: Fence, batch: Batch, number: int) -> None:
        super().__init__(fence, batch, number)
        self._noting = noting
        self._behind = noting.guard.part(*noting._checked(fence, batch), number)

    def _open(self) -> Any:
        with self._noted():
            step = self._behind.__enter__()
        self.written = self._behind.written
        if step is None:
            facts = {"batch": self.batch.number, "part": self.number}
            self._noting.here.note("known", store=self._noting.store, **facts)
        return step

    def _commit(self, step: Any) -> Any:
        self._before_the_write(step)
        with self._noted():
            self._behind.__exit__(None, None, None)
        return self._behind.result

    def _abandon(self, step: Any, error: BaseException) -> None:
        with self._noted():
            self._behind.__exit__(type(error), error, error.__traceback__)

    def _before_the_write(self, step: Any) -> None:
        here, facts = self._noting.here, {"batch": self.batch.number, "part": self.number}
        # Only half of the parts wait, so the mishap hits a batch that is half written.
        if self.number >= self.batch.parts // 2:
            here.wait_if_held(f"in-{self._noting.store}", **facts)
        if self._noting.store == "Redis":
            # In the same step as the part, so it is there if and only if the part was accepted.
            entry = {"token": self.fence.token, "driver": here.name, **facts}
            step.rpush(ACCEPTED, json.dumps(entry))

    def _noted(self) -> AbstractContextManager[None]:
        return self._noting._noted(f"part {self.number} of batch {self.batch.number}")
