"""Run a streaming query as a role, from the grant to the loss."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rink.callables import check_plain
from rink.core.keys import check_name
from rink.core.retry_delay import backoff
from rink.engine.caller_context import made_at
from rink.errors import ConfigError, RoleLost, RoleTimeout, UsageError
from rink.guards import Fence
from rink.roles import Role
from rink.spark.jobs.driver_exit import DriverEnd
from rink.spark.jobs.job import Job, JobState
from rink.spark.jobs.tags import context_of, quietly

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rink.rink import Rink


log = logging.getLogger("rink.spark")


class Fenced(Protocol):
    """Describe an object that refuses lower tokens: a guard or a FencedStream."""

    def raise_fence(self, fence: Fence) -> None:
        """Refuse all lower tokens of this name from now on."""


Starts = TypeVar("Starts", bound=Callable[[Job[Any]], Any])
_CAUSE = re.compile(r"(?:(?:\w+\.)+[A-Z]\w*|[A-Z]\w*(?:Error|Exception)): \S")
"""Match the last line of a Python traceback."""
MAX_PAUSE_S = 30.0
"""The longest pause between two starts. After a query has run this long, pauses are short again."""
_LOOK_INTERVAL_S = 1.0
_WARN_AFTER_S = 10.0


class Query:
    """Run one streaming query, which its function starts.

    Args:
        runner: gets failures, and decides whether a query can still run here.
        r: the group of drivers.
        name: the role's name.
        function: returns the started query.
        guards: the guards whose fence is raised before each start.
        every: seconds from start to start, for a query that ends by itself. If None, such a query
            is started once under each grant.
    """

    def __init__(
        self,
        runner: DriverEnd,
        r: Rink,
        name: str,
        function: Callable[[Job[Any]], StreamingQuery],
        guards: Sequence[Fenced],
        every: float | None = None,
    ) -> None:
        self.name = check_name("query", name)
        check_plain(f"query {name!r}: function", function, "job")
        self.running: StreamingQuery | None = None
        self._spark = runner.spark
        self._rink = r
        self._function = function
        self._guards = tuple(guards)
        self._runner = runner
        self._every = every
        self._turn = threading.Lock()
        self._called_on: int | None = None  # the thread that runs the function now, if any
        self._made_at = made_at()  # reported for its handles: where the function was decorated
        self._job: Job[Any] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"rink-query-{name}", daemon=True)

    def start(self) -> None:
        """Wait for the role from now on."""
        self._thread.start()

    def cancel(self) -> None:
        """Stop the query, and do not wait for its role any more."""
        self._closing.set()
        if (job := self._job) is not None:
            job.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            # No role can be granted any more, and the thread would end without a message.
            if not self._runner.is_useless():
                self._runner.give_up(error)

    def _serve(self) -> None:
        failures = 0
        while not self._closing.is_set():
            role = self._await_role()
            if role is None:
                continue
            job = self._under(role)
            if job.state is not JobState.FAILED:
                failures = 0
                continue
            # The thread could not be started: the JVM may have gone while this driver waited.
            if self._runner.is_useless():
                return
            failures += 1
            pause = backoff(failures, self.name, MAX_PAUSE_S)
            log.warning(
                "query %r could not be run under token %d, retrying in %.1f s: %s",
                self.name, job.token, pause, _shown(job.error),
            )  # fmt: skip
            self._closing.wait(pause)

    def _under(self, role: Role) -> Job[Any]:
        """Run the query as a job, until it has ended and the role is released."""
        job = self._job = Job(self._spark, role, self._under_a_grant)
        job.start()
        if self._closing.is_set():
            job.cancel()
        job.wait()
        self._job = None
        return job

    def _await_role(self) -> Role | None:
        """Return a grant, or None after a while, so that the caller sees a close."""
        try:
            role = self._rink.await_role(self.name, timeout=_LOOK_INTERVAL_S)
        except RoleTimeout:
            return None
        role._handle.made_at = self._made_at  # noqa: SLF001 - of this package
        return role

    def _under_a_grant(self, job: Job[Any]) -> None:
        """Run the query until the role is lost; start it again if it fails."""
        failures, due = 0, time.monotonic()
        while job.role.is_held and not job.lost.is_set():
            begun = time.monotonic()
            try:
                with self.turn(lambda: _raise_if_ended(job)):
                    self.run_once(job)
            except BaseException as error:
                # Catch sys.exit(), too. It would end the job without a message, and this driver
                # would request the role again at once.
                if job.lost.is_set():
                    log.info("query %r ended after its role was lost: %s", self.name, _shown(error))
                    return
                if self._runner.is_useless():
                    raise
                ran_long = time.monotonic() - begun > MAX_PAUSE_S
                failures = 1 if ran_long else failures + 1
                pause = backoff(failures, self.name, MAX_PAUSE_S)
                log.warning(
                    "query %r failed under token %d, restarting in %.1f s: %s",
                    self.name, job.token, pause, _shown(error),
                )  # fmt: skip
                job.lost.wait(pause)
            else:
                failures = 0
                due = self._next_start(due)
                if not job.lost.is_set():
                    self._report_end(job, due)
                job.lost.wait(min(max(due - time.monotonic(), 0.0), threading.TIMEOUT_MAX))

    def _next_start(self, due: float) -> float:
        """Return the next start of a query that has ended by itself.

        Skip missed starts.
        """
        return math.inf if self._every is None else max(due + self._every, time.monotonic())

    def _report_end(self, job: Job[Any], due: float) -> None:
        if self._every is None:
            log.warning(
                "query %r ended by itself under token %d and is not started again before the "
                "next grant of its role. If it should end, declare it with every=SECONDS, or run "
                "it with run_query()",
                self.name, job.token,
            )  # fmt: skip
        else:
            log.info(
                "query %r ended under token %d, restarting in %.1f s",
                self.name, job.token, max(due - time.monotonic(), 0.0),
            )  # fmt: skip

    @contextlib.contextmanager
    def turn(self, go_on: Callable[[], None], *, tells: bool = False) -> Iterator[None]:
        """Wait until no run of this query is active, and hold back new ones.

        `go_on` is called about once a second, and raises to end the wait. With `tells`, a long wait
        is logged.

        Raises:
            UsageError: the query's own function calls this, so the wait would never end.
        """
        if self._called_on == threading.get_ident():
            raise UsageError(
                f"run_query({self.name!r}) was called by the function that starts this query, so "
                "it would wait forever. Return the started query, and call run_query from "
                "elsewhere"
            )
        warn_at = time.monotonic() + _WARN_AFTER_S if tells else math.inf
        while not self._turn.acquire(timeout=_LOOK_INTERVAL_S):
            go_on()
            if time.monotonic() >= warn_at:
                log.warning("run_query(%r) waits for the run that is active here", self.name)
                warn_at = math.inf
        try:
            yield
        finally:
            self._turn.release()

    def run_once(self, job: Job[Any]) -> StreamingQuery:
        """Run the query under a grant, and return it when it has ended.

        Raises:
            ConfigError: its function did not return a started query.
            BaseException: the exception of its function, or of the query.
        """
        fence = Fence.of(job.role)
        for guard in self._guards:
            guard.raise_fence(fence)
        self._called_on = threading.get_ident()
        try:
            query = self._function(job)
        finally:
            self._called_on = None
        if not hasattr(query, "awaitTermination"):
            raise ConfigError(
                f"the function of query {self.name!r} returned {query!r}: it must return the "
                "started query, which .start() returns"
            )
        self.running = query
        job._stop_with("query", lambda: self._stop(query))  # noqa: SLF001 - of this package
        try:
            query.awaitTermination()
        finally:
            self.running = None
            quietly(query.stop)
        return query

    def _stop(self, query: StreamingQuery) -> None:
        # stop() alone waits for a busy foreachBatch.
        context = context_of(self._spark)
        if context is not None:
            quietly(context.cancelJobGroup, str(query.runId))
        quietly(query.stop)

    def __repr__(self) -> str:
        return f"<Query {self.name!r}, {'running' if self.running else 'not running'} here>"


def _raise_if_ended(job: Job[Any]) -> None:
    if job.lost.is_set():
        raise RoleLost(
            f"query {job.id!r} is ending: its role (token {job.token}) was lost, or it was closed",
            role=job.id,
            token=job.token,
        )


def _shown(error: BaseException | None) -> str:
    """Return an error's first line, and its innermost traceback's last line."""
    first, *others = str(error).splitlines() or [""]
    causes = [line for line in others if _CAUSE.match(line)]
    return " … ".join(line[:400] for line in (f"{type(error).__name__}: {first}", *causes[-1:]))
