"""`JobRunner`: which jobs and queries this driver runs, by the roles that it holds."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pyspark.sql import SparkSession

from rink.arguments import check_count, check_seconds
from rink.callables import check_plain
from rink.engine.caller_context import made_at
from rink.errors import ConfigError
from rink.rink import Rink
from rink.roles import Role
from rink.spark.jobs.driver_exit import DriverEnd
from rink.spark.jobs.job import Job, JobState
from rink.spark.jobs.job_list import JobListWatch, ListJobs
from rink.spark.jobs.queries import Fenced, Query, Starts

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")
Take = Callable[[str], Role | None]
"""Takes the role of a job; None where it is another driver's."""
log = logging.getLogger("rink.spark")


RANK_TIMEOUT_S = 300.0
"""Longer than the default `rebalance_delay` and the default TTL of a killed driver together."""

_ENDS_WITHIN_S = 30.0
"""How long a job that Ctrl-C ends is waited for, in seconds."""


class JobRunner(DriverEnd):
    """Runs Spark jobs and streaming queries while this driver holds their roles.

    Args:
        spark: the session of this driver.
        r: a joined `rink.Rink` (the blocking one). Its members are the drivers; leave it after this
            is closed. Where the JVM is gone this leaves it at once, so that another driver gets its
            roles; `wait` raises then.
    """

    def __init__(self, spark: SparkSession, r: Rink) -> None:
        if not isinstance(r, Rink):
            raise ConfigError(f"a JobRunner takes a rink.Rink, the blocking one, and not {r!r}")
        super().__init__(spark, r)
        self._jobs: dict[str, Job[Any]] = {}
        self._watches: list[JobListWatch] = []
        self._queries: dict[str, Query] = {}
        self._was_ranked = False

    def start(
        self,
        job_id: str,
        function: Callable[[Job[T]], T],
        *,
        timeout: float | None = RANK_TIMEOUT_S,
    ) -> Job[T] | None:
        """Start a job if its role is mine, and return without waiting for its end.

        A driver that has just joined owns no role yet. So the first calls wait until this driver
        was ranked once. Later calls return at once. They also return None for a role that is just
        being handed over to this driver; `run` waits for such a role.

        Args:
            job_id: the role's name.
            function: called with the job in a thread of its own. Its Spark jobs carry a tag, and
                are cancelled when the role is lost; threads that it starts should be
                InheritableThreads.
            timeout: longest wait for this driver's first rank, in seconds; None for no limit.

        Returns:
            None where the role is another driver's, or the job runs here already.

        Raises:
            RoleTimeout: this driver was not ranked within `timeout`; the message says why.
            ClosedError: this runner, or the group, is closed.
            ConfigError: there is a query of this name: each needs a role of its own. Or the
                function cannot be called with a job, or the timeout is not a duration.
        """
        check_plain(f"job {job_id!r}: function", function, "job")
        if not self._was_ranked:
            self._was_ranked = self._rink._is_ranked()  # noqa: SLF001 - a friend of the group
        when_known = self._when_known(timeout)
        take = self._rink.get_role if self._was_ranked else when_known
        return self._start(job_id, function, lambda: None, take)

    def _when_known(self, timeout: float | None) -> Take:
        """Return what takes a role once it is known whether it is mine."""
        if timeout is not None:
            check_seconds("timeout", timeout)

        def take(job_id: str) -> Role | None:
            role = self._rink._role_if_mine(  # noqa: SLF001 - a friend of the group
                job_id, timeout, self._refuse_closed
            )
            self._was_ranked = True
            return role

        return take

    def _start(
        self,
        job_id: str,
        function: Callable[[Job[T]], T],
        on_end: Callable[[], None],
        take: Take,
        query: Query | None = None,
    ) -> Job[T] | None:
        """Start a job, or a run of the declared query, if its role can be taken."""
        self._refuse_closed()
        if self._queries.get(job_id) is not query:
            raise _is_a_query(job_id)
        if self._runs(job_id):
            return None
        role = take(job_id)
        if role is None:
            return None
        role._handle.made_at = made_at()  # noqa: SLF001 - a friend of the handle

        def ended() -> None:
            if job.state is JobState.FAILED:
                self.is_useless()
            on_end()

        job = Job(self.spark, role, function, ended)
        with self._lock:
            is_query = (
                self._queries.get(job_id) is not query
            )  # one may have been declared meanwhile
            if self._is_closed or is_query or self._runs(job_id):
                role.release()
                self._refuse_closed()
                if is_query:
                    raise _is_a_query(job_id)
                return None
            self._jobs = {job.id: job for job in self.jobs} | {job_id: job}
        job.start()
        return job

    def _runs(self, job_id: str) -> bool:
        known = self._jobs.get(job_id)
        return known is not None and not known.wait(0)

    def run(
        self,
        job_id: str,
        function: Callable[[Job[T]], T],
        *,
        timeout: float | None = RANK_TIMEOUT_S,
    ) -> Job[T] | None:
        """Run a job if its role is mine, and return when it has ended.

        It waits until this driver is ranked. If it owns the role, it waits until the previous
        driver has released it. So None always means that the job is not for this driver. Ctrl-C
        ends it.

        Args:
            job_id: the role's name.
            function: called with the job, as in `start`.
            timeout: longest wait for rank and role, without the job itself; None for no limit.

        Returns:
            The job, which has ended: its `result()` returns or raises what the function did. None
            if
            another driver owns the role, or if the job runs here already.

        Raises:
            RoleTimeout: no rank or role within `timeout`; the message says why.
            ClosedError, ConfigError: as `start` says.
        """
        check_plain(f"job {job_id!r}: function", function, "job")
        job = self._start(job_id, function, lambda: None, self._when_known(timeout))
        if job is not None:
            _wait_for(job)
        return job

    def watch(
        self,
        list_pending_jobs: ListJobs,
        function: Callable[[Job[Any]], Any],
        *,
        every: float = 10.0,
        at_once: int = 4,
    ) -> JobListWatch:
        """Run, from now on, each listed job whose role is mine.

        The list is asked for as soon as this driver is ranked, after `every` seconds, when a job of
        this watch has ended, and when the group has changed: this driver may have won a role.

        Args:
            list_pending_jobs: returns the ids of the jobs that are to be done; one that is done is
                to be listed no more.
            function: called with each job, as in `start`.
            every: seconds between two looks at the list, at most.
            at_once: how many jobs run here beside each other.

        Raises:
            ConfigError: `list_pending_jobs` is no function, the other one cannot be called with a
                job, or a setting cannot be used.
        """
        if not inspect.isgeneratorfunction(list_pending_jobs):
            check_plain("watch: list_pending_jobs", list_pending_jobs)
        check_plain("watch: function", function, "job")
        watch = JobListWatch(
            partial(self._start, take=self._rink.get_role),
            self._rink,
            list_pending_jobs,
            function,
            every=check_seconds("every", every),
            at_once=check_count("at_once", at_once),
            is_useless=self.is_useless,
        )
        with self._lock:
            self._refuse_closed()
            self._watches.append(watch)
            watch.start()
        return watch

    def query(
        self, name: str, *, guards: Sequence[Fenced] = (), every: float | None = None
    ) -> Callable[[Starts], Starts]:
        """Start a streaming query by a function when its role is granted.

            @jobs.query("delays", guards=[guard])
            def delays(job):
                return (job.spark.readStream.format("rink").options(**fence(job.role))...
                        .writeStream.foreachBatch(fenced(write, guard, job.role))
                        .option("checkpointLocation", ...).start())

        The query is stopped when the role is lost, and started anew, from its checkpoint, under the
        next grant: here or by another driver. When it fails it is started again under the same
        grant, after growing pauses.

        A query that ends by itself, as with `Trigger.AvailableNow`, is given `every`:

            @jobs.query("hourly", every=3600)

        Each grant starts it at once. So it completes the previous driver's work, and no hour is
        skipped when the role moves. Then it is started every so many seconds, counted from start to
        start. Runs never overlap: if one takes longer, the next one starts when it ends.

        Args:
            name: the role's.
            guards: their fence is raised before the function is called: guards of `rink.guards`,
                and a `FencedStream` for each stream that the query writes.
            every: seconds from start to start, more than 0. None if the query should not end.

        Raises:
            ConfigError: there is a query, or a running job, of this name: each needs a role of its
                own. Or the function cannot be called with a job, or `every` is no interval.
            ClosedError: this runner is closed.
        """
        self._refuse_closed()
        if every is not None and check_seconds("every", every) == 0:
            raise ConfigError(f"query {name!r}: every=0 must be more than 0 seconds")

        def declare(function: Starts) -> Starts:
            with self._lock:
                self._refuse_closed()
                if name in self._queries or self._runs(name):
                    what = "query" if name in self._queries else "job"
                    raise ConfigError(
                        f"there is a {what} {name!r} already: each has a role of its own"
                    )
                query = self._queries[name] = Query(
                    self.spark, self._rink, name, function, tuple(guards), self, every
                )
                query.start()
            return function

        return declare

    def run_query(
        self,
        name: str,
        function: Callable[[Job[Any]], StreamingQuery] | None = None,
        *,
        guards: Sequence[Fenced] = (),
        timeout: float | None = RANK_TIMEOUT_S,
    ) -> StreamingQuery | None:
        """Run a query that ends if its role is mine, and return when it has ended.

        For a driver that cron starts, and that ends with its query:

            jobs.run_query("nightly", start, guards=[guard])

        Without a function it runs the query that was declared with this name, beside its schedule.
        It waits for a run that goes on here first. So events that were sent before the call are in
        the output when it returns. It waits for ever for a query that does not end by itself.
        Ctrl-C stops it.

        Args:
            name: the role's.
            function: called with the job; it returns the started query, as in `query`.
            guards: their fence is raised before the function is called. A declared query has its
                own.
            timeout: longest wait for rank and role, as in `run`.

        Returns:
            The query, which has ended by itself or was stopped. None if another driver owns the
            role, or
            if a run with this name goes on here already.

        Raises:
            BaseException: what the function raised, or the query failed with. It is not tried
                again.
            RoleLost: the role was lost, or this runner closed, before the query had ended.
            RoleTimeout, ClosedError: as `run` says.
            UsageError: the function of this very query calls this.
            ConfigError: no query of this name was declared and no function is given, or both. Or
                the function cannot be called with a job, or returned no query.
        """
        self._refuse_closed()
        declared = self._queries.get(name)
        if function is not None:
            if declared is not None:
                raise ConfigError(f"there is a query {name!r} already: run it by its name alone")
            query = Query(self.spark, self._rink, name, function, tuple(guards), self)
        elif declared is None:
            raise ConfigError(
                f"there is no query {name!r}: declare it with `query`, or give its function"
            )
        elif guards:
            raise ConfigError(f"query {name!r} was declared with guards of its own: give none here")
        else:
            query = declared
        with query.turn(self._refuse_closed, tells=True):
            take = self._when_known(timeout)
            job = self._start(name, query.run_once, lambda: None, take, declared)
            if job is None:
                return None
            _wait_for(job)  # in its turn: a schedule goes on only when it has ended
            return job.result()

    @property
    def jobs(self) -> list[Job[Any]]:
        """The jobs that run here."""
        return [job for job in list(self._jobs.values()) if not job.wait(0)]

    @property
    def queries(self) -> list[Query]:
        """The queries that were declared, running here or not."""
        return list(self._queries.values())

    def close(self, timeout: float = 30.0) -> None:
        """End all jobs, watches and queries, and release their roles.

        Args:
            timeout: seconds, in all, that functions which do not return are waited for; their roles
                stay until they do.
        """
        with self._lock:  # what is in the lists has been started: only that can be waited for
            self._is_closed = True
        end = time.monotonic() + timeout
        to_end: list[Any] = [*self._watches, *self._queries.values(), *self._jobs.values()]
        for one in to_end:
            one.cancel()
        for one in to_end:
            if not one.wait(max(end - time.monotonic(), 0.0)):
                log.error("%r still runs after %g s", one, timeout)
        self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _wait_for(job: Job[Any]) -> None:
    """Wait for the end of a job; Ctrl-C ends it, since nobody would know of it any more."""
    try:
        job.wait()
    except BaseException:
        job.cancel()
        job.wait(_ENDS_WITHIN_S)
        raise


def _is_a_query(job_id: str) -> ConfigError:
    return ConfigError(f"job {job_id!r}: there is a query of this name")
