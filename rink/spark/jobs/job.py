"""One run of a function under one grant of a role, with Spark jobs that end when the role is lost."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from rink.errors import RoleLost, UsageError
from rink.roles import Role
from rink.spark.jobs.tags import Tag, make_active, quietly

T = TypeVar("T")
log = logging.getLogger("rink.spark")

CANCELS_AGAIN_S = 0.05
"""After a loss the function's Spark jobs are cancelled so often until it returns: it may start
another one.
"""
_TELLS_AFTER_S = 10.0


class JobState(enum.Enum):
    """How a job stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"


class Job(Generic[T]):
    """A function that runs while a role is held; made by `JobRunner`.

    Attributes:
        id: the job's, which is the role's name.
        role: the grant it runs under.
        token: the fencing token of the grant, for what it writes.
        spark: the session.
        lost: set when the role is lost, the job is cancelled, or it has ended. A function that
            computes in Python looks at it, or waits on it; so does a thread that the function
            leaves behind.
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
        """Raise RoleLost unless the role is held at this very moment."""
        self.role.raise_if_lost()

    def on_loss(self, stop: Callable[[], None]) -> None:
        """Call this on a loss, beside the cancelling of Spark jobs.

        If the role is lost already, it is called at once. It may block. A later call of `on_loss`
        replaces this one. A query is stopped in any case.
        """
        self._stop_with("function", stop)

    # ── for who started it ───────────────────────────────────────────────────────────────────

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
        """Return what the function raised."""
        return self._error if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended and its role is released; return whether it has."""
        return self._ended.wait(timeout)

    def result(self) -> T | None:
        """Return what the function returned, after waiting for it.

        Raises:
            RoleLost: the role was lost before it had returned; what it raised then is the cause.
            BaseException: what the function raised.
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
        """Start, once: a thread for the function, and one that ends its Spark jobs on a loss."""
        if self._was_started:
            raise UsageError(f"job {self.id!r} was started before")
        self._was_started = True
        name = f"rink-job-watch-{self.id}"
        try:
            threading.Thread(target=self._watch, name=name, daemon=True).start()
        except BaseException as error:  # no thread can be started, say
            self._has_returned(error)
            self._let_go()
            self._ended.set()
            raise
        self.role.lost.then(self.cancel)
        interrupted = None
        try:
            _Thread(
                self.spark, f"rink-job-{self.id}", self._run, self._has_returned, self._may_begin
            ).start()
        except BaseException as error:
            # The JVM may be gone; or Ctrl-C came, before the thread had begun or after.
            if self._may_begin():
                self._has_returned(error)
            else:
                self.cancel()
            interrupted = None if isinstance(error, Exception) else error
        if interrupted is not None:
            raise interrupted

    def _may_begin(self) -> bool:
        """Whether nobody has begun, or given up beginning: true once, for whoever does either."""
        return self._begins.acquire(blocking=False)

    def cancel(self) -> None:
        """End it as a loss does; its role is let go when it has returned."""
        self.lost.set()
        self._news.set()

    def _stop_with(self, whose: str, stop: Callable[[], None]) -> None:
        """Call this on a loss: one of the function's, and one of the runner's."""
        self._stops[whose] = stop
        if self.lost.is_set():  # looked at only now: whoever ends it meanwhile has seen it
            self._call_stops()

    def _run(self) -> None:
        make_active(self.spark)
        with self._tag.on_this_thread():
            self._result = self._function(self)

    def _has_returned(self, error: BaseException | None) -> None:
        self._error = error  # given to who asks for the result
        # What it did last may have been done without the role: a frozen process hears of its loss
        # late.
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
        """Cancel its Spark jobs, and again until its function has returned: only then is the role
        let go.
        """
        quietly(self._tag.cancel)  # where it has returned, those of threads that it left behind
        if self._returned.is_set():
            return
        self._call_stops()
        waited = 0.0
        while not self._returned.wait(CANCELS_AGAIN_S):
            quietly(self._tag.cancel)
            waited += CANCELS_AGAIN_S
            if waited >= _TELLS_AFTER_S:
                log.warning(
                    "job %r has lost its role, its Spark jobs are cancelled, and its function "
                    "still runs: it keeps the role from the next driver (see grace)",
                    self.id,
                )
                waited = 0.0

    def _let_go(self) -> None:
        """Release the role; first tell whatever the function has left behind."""
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
    """A thread that says how it ended, also where it fails before its function is called: it asks
    the JVM first.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        function: Callable[[], None],
        ended: Callable[[BaseException | None], None],
        may_begin: Callable[[], bool],
    ) -> None:
        super().__init__(function, session=spark, name=name, daemon=True)
        self._tell = ended
        self._may_begin = may_begin

    def run(self) -> None:
        """Run the function, and tell what it raised."""
        if not self._may_begin():
            return
        raised = None
        try:
            super().run()
        except BaseException as error:
            raised = error
        finally:
            self._tell(raised)
