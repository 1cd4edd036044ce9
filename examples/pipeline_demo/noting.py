"""A guard that notes what the guard behind it accepted, knew already and refused; and the place where a mishap hits."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from pipeline_demo.here import ACCEPTED, Here
from rink.errors import StaleToken
from rink.guards import Batch, Fence, Guard

ALWAYS = 2**62  # a token that no store ever finds stale


class NotingGuard(Guard):
    """Behaves as the guard behind it.

    Args:
        guard: the one behind.
        store: how notes call it.
        here: which process this is. Executors have it as their driver has.
    """

    def __init__(self, guard: Guard, store: str, here: Here) -> None:
        self.guard = guard
        self.store = store
        self.here = here

    def raise_fence(self, fence: Fence) -> None:
        with self._noted("its fence"):
            self.guard.raise_fence(self._told_fence(fence))
        self.here.note_fence(fence.token)

    def begin(self, fence: Fence, batch: Batch) -> None:
        self.here.note("batch", store=self.store, number=batch.number, token=fence.token)
        self.here.wait_if_held(f"before-{self.store}", batch=batch.number)
        with self._noted(f"batch {batch.number}"):
            self.guard.begin(*self._told(fence, batch))

    def part(self, fence: Fence, batch: Batch, number: int) -> "NotingPart":
        return NotingPart(self, fence, batch, number)

    def finish(self, fence: Fence, batch: Batch, results: Sequence[Any]) -> None:
        with self._noted(f"batch {batch.number}"):
            self.guard.finish(*self._told(fence, batch), results)

    def close(self) -> None:
        self.guard.close()

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        try:
            yield
        except StaleToken as stale:
            self.here.note("refused", store=self.store, written=what, why=str(stale))
            raise

    def _told_fence(self, fence: Fence) -> Fence:
        return Fence(fence.name, ALWAYS) if self.here.careless else fence

    def _told(self, fence: Fence, batch: Batch) -> tuple[Fence, Batch]:
        if self.here.careless:  # neither fenced nor known again: each grant is another query to it
            batch = Batch(f"{batch.query}/{fence.token}", batch.number, batch.parts)
        return self._told_fence(fence), batch


class NotingPart:
    """One part; what `fenced` uses of it."""

    def __init__(self, noting: NotingGuard, fence: Fence, batch: Batch, number: int) -> None:
        self._noting = noting
        self._part = noting.guard.part(*noting._told(fence, batch), number)
        self._fence, self._batch, self._number = fence, batch, number
        self._step: Any = None

    @property
    def result(self) -> Any:
        return self._part.result

    def __enter__(self) -> Any:
        with self._noted():
            self._step = self._part.__enter__()
        if self._step is None:
            facts = {"batch": self._batch.number, "part": self._number}
            self._noting.here.note("known", store=self._noting.store, **facts)
        return self._step

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._step is not None and error is None:
            self._before_the_write()
        with self._noted():
            self._part.__exit__(kind, error, trace)

    def _before_the_write(self) -> None:
        here, facts = self._noting.here, {"batch": self._batch.number, "part": self._number}
        # Half of the parts: so the mishap hits a batch that is half written.
        if self._number >= self._batch.parts // 2:
            here.wait_if_held(f"in-{self._noting.store}", **facts)
        if self._noting.store == "Redis":
            # In the same step as the part itself: it is there if and only if the part was accepted.
            entry = {"token": self._fence.token, "driver": here.driver, **facts}
            self._step.rpush(ACCEPTED, json.dumps(entry))

    def _noted(self) -> Any:
        return self._noting._noted(f"part {self._number} of batch {self._batch.number}")
