"""Run a function under one grant of a role, and end it on a loss."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from rink.errors import RoleLost, UsageError
from rink.roles import Role
from rink.spark.jobs.tags import Tag, make_active, quietly

T = TypeVar("T")
log = logging.getLogger("rink.spark")

CANCEL_INTERVAL_S = 0.05
"""The interval at which the function's Spark jobs are cancelled after a loss, until the function
returns. Meanwhile it may start new Spark jobs.
"""
_WARN_INTERVAL_S = 10.0


class JobState(enum.Enum):
    """Name the states of a job."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"


class Job(Generic[T]):
    """Run a function while a role is held; `JobRunner` makes the jobs.

    Attributes:
        id: the job's id, which is the role's name.
        role: the grant under which the job runs.
        token: the grant's fencing token, for the function's writes.
        spark: the session.
        lost: set when the role is lost, the job is cancelled, or the job has ended. A function that
            computes in Python must check it or wait for it. A thread that outlives the function
            must do so, too.
    """

    def __init__(
        self,
        spark: SparkSession,
        role: Role,
        function: Callable[[Job[T]], T],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.id = role.name
        self.role = role
        self.token = role.token
        self.spark = spark
        self.lost = threading.Event()
        self._function = function
        self._on_end = on_end
        self._tag = Tag(spark, role.name, role.token)
        self._news = threading.Event()
        self._returned = threading.Event()
        self._ended = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._was_started = False
        self._begins = threading.Lock()
        self._was_lost = False
        self._stops: dict[str, Callable[[], None]] = {}

    # ── for the function ─────────────────────────────────────────────────────────────────────

    def raise_if_lost(self) -> None:
        """Raise RoleLost unless the role is held at this moment."""
        self.role.raise_if_lost()

    def on_loss(self, stop: Callable[[], None]) -> None:
        """Call `stop` on a loss, besides cancelling the Spark jobs.

        If the role is lost already, call `stop` at once. `stop` may block. A later call of
        `on_loss` replaces it. A query is stopped in any case.
        """
        self._stop_with("function", stop)

    # ── for the caller ───────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> JobState:
        """Return the job's state."""
        if not self._ended.is_set():
            return JobState.RUNNING
        if self._was_lost:
            return JobState.LOST
        return JobState.SUCCEEDED if self._error is None else JobState.FAILED

    @property
    def error(self) -> BaseException | None:
        """Return the exception that the function raised, or None."""
        return self._error if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has released its role; return False on timeout."""
        return self._ended.wait(timeout)

    def result(self) -> T | None:
        """Wait for the function, and return its result.

        Raises:
            RoleLost: the role was lost before the function returned. Its cause is the exception of
                the function, if there was one.
            BaseException: the exception of the function.
        """
        self.wait()
        if self._was_lost:
            raise RoleLost(
                f"job {self.id!r} was ended: its role (token {self.token}) was lost",
                role=self.id,
                token=self.token,
            ) from self._error
        if self._error is not None:
            raise self._error
        return self._result

    def start(self) -> None:
        """Start the function, and a thread that ends its Spark jobs on a loss."""
        if self._was_started:
            raise UsageError(f"job {self.id!r} was started before")
        self._was_started = True
        name = f"rink-job-watch-{self.id}"
        try:
            threading.Thread(target=self._watch, name=name, daemon=True).start()
        except BaseException as error:  # for example, no thread can be started
            self._has_returned(error)
            self._let_go()
            self._ended.set()
            raise
        self.role.lost.then(self.cancel)
        try:
            _Thread(self).start()
        except BaseException as error:
            # The JVM may be gone, or Ctrl-C came before or after the thread had begun.
            if self._may_begin():
                self._has_returned(error)
            else:
                self.cancel()
            if not isinstance(error, Exception):
                raise

    def _may_begin(self) -> bool:
        """Return True once: to the thread that begins or that gives up."""
        return self._begins.acquire(blocking=False)

    def cancel(self) -> None:
        """End the job as a loss does, and release its role after its return."""
        self.lost.set()
        self._news.set()

    def _stop_with(self, whose: str, stop: Callable[[], None]) -> None:
        """Call `stop` on a loss; the function and the runner have a stop each."""
        self._stops[whose] = stop
        # Check only now: a thread that sets `lost` after this sees the new stop.
        if self.lost.is_set():
            self._call_stops()

    def _run(self) -> None:
        make_active(self.spark)
        with self._tag.on_this_thread():
            self._result = self._function(self)

    def _has_returned(self, error: BaseException | None) -> None:
        self._error = error  # `result` raises it
        # The last steps may have run without the role: a frozen process notices its loss late.
        self._was_lost = self.lost.is_set() or not self.role.is_held
        self._returned.set()
        self._news.set()

    def _watch(self) -> None:
        self._news.wait()
        try:
            self._end()
        finally:
            self.role.lost.forget(self.cancel)
            self._let_go()
            self._ended.set()
            self._on_end()

    def _end(self) -> None:
        """Cancel the job's Spark jobs until its function has returned.

        Only then may the role be released.
        """
        # If the function has returned, this cancels the jobs of threads that outlive it.
        quietly(self._tag.cancel)
        if self._returned.is_set():
            return
        self._call_stops()
        waited = 0.0
        while not self._returned.wait(CANCEL_INTERVAL_S):
            quietly(self._tag.cancel)
            waited += CANCEL_INTERVAL_S
            if waited >= _WARN_INTERVAL_S:
                log.warning(
                    "job %r has lost its role. Its Spark jobs are cancelled, but its function "
                    "still runs, so the next driver does not get the role yet (see grace)",
                    self.id,
                )
                waited = 0.0

    def _let_go(self) -> None:
        """Release the role; first signal the loss to threads of the function."""
        self.lost.set()
        self.role.release()

    def _call_stops(self) -> None:
        for whose in list(self._stops):
            stop = self._stops.pop(whose, None)  # None: another thread calls it
            if stop is not None:
                name = f"rink-job-stop-{self.id}"
                threading.Thread(target=quietly, args=(stop,), name=name, daemon=True).start()

    def __repr__(self) -> str:
        return f"<Job {self.id!r} token={self.token} {self.state.value}>"


class _Thread(InheritableThread):
    """Run a job's function, and report the end even of a failed start.

    An InheritableThread calls the JVM before it calls the function.
    """

    def __init__(self, job: Job[Any]) -> None:
        name = f"rink-job-{job.id}"
        super().__init__(job._run, session=job.spark, name=name, daemon=True)  # noqa: SLF001
        self._job = job

    def run(self) -> None:
        """Run the function, and report its exception."""
        if not self._job._may_begin():  # noqa: SLF001 - of this module
            return
        raised = None
        try:
            super().run()
        except BaseException as error:
            raised = error
        self._job._has_returned(raised)  # noqa: SLF001
