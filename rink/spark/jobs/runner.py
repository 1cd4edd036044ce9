"""Run jobs and queries while this driver holds their roles."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
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
"""A function that takes the role of a job; it returns None if another driver owns the role."""
log = logging.getLogger("rink.spark")

RANK_TIMEOUT_S = 300.0
"""Longer than the sum of the default `rebalance_delay` and the default TTL of a killed driver."""

_STOP_TIMEOUT_S = 30.0
"""The longest wait for a job to end after Ctrl-C."""


class JobRunner(DriverEnd):
    """Run Spark jobs and queries while this driver holds their roles.

    Args:
        spark: the session of this driver.
        r: a joined `rink.Rink` (the blocking class). The group's members are the drivers. Leave the
            group after closing the runner. If the JVM is gone, the runner leaves the group at once,
            so that another driver gets its roles, and `wait` raises.
    """

    def __init__(self, spark: SparkSession, r: Rink) -> None:
        if not isinstance(r, Rink):
            raise ConfigError(f"a JobRunner takes a rink.Rink (the blocking one), not {r!r}")
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
        """Start a job if this driver owns its role; do not wait for its end.

        A driver that has just joined owns no role yet. So the first calls wait until this driver
        was ranked once. Later calls return at once. They also return None for a role that is being
        handed over to this driver; `run` waits for such a role.

        Args:
            job_id: the role's name.
            function: called with the job in a new thread. Its Spark jobs carry a tag, and are
                cancelled when the role is lost. Threads that it starts should be
                InheritableThreads.
            timeout: longest wait for this driver's first rank, in seconds; None for no limit.

        Returns:
            The job. None if another driver owns the role, or if the job runs here already.

        Raises:
            RoleTimeout: this driver was not ranked within `timeout`; the message says why.
            ClosedError: this runner, or the group, is closed.
            ConfigError: a query has this name, since each job and query needs its own role. Or the
                function cannot be called with a job, or the timeout is not a duration.
        """
        check_plain(f"job {job_id!r}: function", function, "job")
        if not self._was_ranked:
            self._was_ranked = self._rink._is_ranked()  # noqa: SLF001 - of this package
        when_known = self._when_known(timeout)
        take = self._rink.get_role if self._was_ranked else when_known
        return self._start(job_id, function, lambda: None, take)

    def _when_known(self, timeout: float | None) -> Take:
        """Return a function that takes a role once its owner is known."""
        if timeout is not None:
            check_seconds("timeout", timeout)

        def take(job_id: str) -> Role | None:
            role = self._rink._role_if_mine(  # noqa: SLF001 - of this package
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
        role._handle.made_at = made_at()  # noqa: SLF001 - of this package

        def ended() -> None:
            if job.state is JobState.FAILED:
                self.is_useless()
            on_end()

        job = Job(self.spark, role, function, ended)
        with self._lock:
            # A query of this name may have been declared meanwhile.
            is_query = self._queries.get(job_id) is not query
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
        """Run a job if this driver owns its role, until the job has ended.

        Wait until this driver is ranked. If it owns the role, also wait until the previous driver
        has released it. So None never means that the role is still being handed over to this
        driver. Ctrl-C ends the job.

        Args:
            job_id: the role's name.
            function: called with the job, as in `start`.
            timeout: longest wait for rank and role, without the job itself; None for no limit.

        Returns:
            The ended job; its `result()` returns the function's result or raises its exception.
            None if another driver owns the role, or if the job runs here already.

        Raises:
            RoleTimeout: no rank or role within `timeout`; the message says why.
            ClosedError, ConfigError: see `start`.
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
        """Run each listed job whose role this driver owns, from now on.

        Read the list when this driver is ranked, after `every` seconds, when a job of this watch
        has ended, and when the group has changed, since this driver may then own more roles.

        Args:
            list_pending_jobs: returns the ids of the pending jobs. It must not list finished jobs.
            function: called with each job, as in `start`.
            every: the longest time between two reads of the list, in seconds.
            at_once: the maximum number of jobs that run here at once.

        Raises:
            ConfigError: `list_pending_jobs` is not a function, `function` cannot be called with a
                job, or a setting is wrong.
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
        """Declare a streaming query, which starts when its role is granted.

            @jobs.query("delays", guards=[guard])
            def delays(job):
                return (job.spark.readStream.format("rink").options(**fence(job.role))...
                        .writeStream.foreachBatch(fenced(write, guard, job.role))
                        .option("checkpointLocation", ...).start())

        The query is stopped when the role is lost. Under the next grant, here or on another driver,
        it is started again from its checkpoint. If it fails, it is started again under the same
        grant, after growing pauses.

        A query that ends by itself, as with `Trigger.AvailableNow`, needs `every`:

            @jobs.query("hourly", every=3600)

        Each grant starts it at once. So it completes the previous driver's work, and no hour is
        skipped when the role moves. Then it is started every `every` seconds, counted from start to
        start. Runs never overlap: if a run takes longer, the next run starts when it ends.

        Args:
            name: the role's name.
            guards: the guards whose fence is raised before the function is called: guards of
                `rink.guards`, and a `FencedStream` for each stream that the query writes.
            every: seconds from start to start, more than 0. None if the query should not end.

        Raises:
            ConfigError: a query or a running job has this name, since each needs its own role. Or
                the function cannot be called with a job, or `every` is not an interval.
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
                        f"there is a {what} {name!r} already, and each needs a role of its own: "
                        "choose another name"
                    )
                query = self._queries[name] = Query(self, self._rink, name, function, guards, every)
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
        """Run a query to its end if this driver owns its role.

        Use this method in a driver that cron starts, and that ends with its query:

            jobs.run_query("nightly", start, guards=[guard])

        Without a function, run the declared query of this name, outside its schedule. First wait
        for an active run of this query here. So events that were sent before the call are in the
        output when this method returns. It waits forever for a query that does not end by itself.
        Ctrl-C stops the query.

        Args:
            name: the role's name.
            function: called with the job; it returns the started query, as in `query`.
            guards: the guards whose fence is raised before the function is called. Give none for a
                declared query, which has its own guards.
            timeout: longest wait for rank and role, as in `run`.

        Returns:
            The query, which has ended by itself or was stopped. None if another driver owns the
            role, or if a run with this name is active here.

        Raises:
            BaseException: the exception of the function or of the query. The query is not retried.
            RoleLost: the role was lost, or this runner was closed, before the query had ended.
            RoleTimeout, ClosedError: see `run`.
            UsageError: the function of this query calls this method.
            ConfigError: there is neither a declared query nor a function, or there are both. Or the
                function cannot be called with a job, or did not return a query.
        """
        self._refuse_closed()
        declared = self._queries.get(name)
        if function is not None:
            if declared is not None:
                raise ConfigError(
                    f"there is a query {name!r} already: run it by its name, without a function"
                )
            query = Query(self, self._rink, name, function, guards)
        elif declared is None:
            raise ConfigError(
                f"there is no query {name!r}: declare it with `query`, or pass its function"
            )
        elif guards:
            raise ConfigError(
                f"query {name!r} was declared with its own guards: pass no guards here"
            )
        else:
            query = declared
        with query.turn(self._refuse_closed, tells=True):
            take = self._when_known(timeout)
            job = self._start(name, query.run_once, lambda: None, take, declared)
            if job is None:
                return None
            _wait_for(job)  # still in this query's turn: its schedule continues only after this run
            return job.result()

    @property
    def jobs(self) -> list[Job[Any]]:
        """Return the jobs that run here."""
        return [job for job in list(self._jobs.values()) if not job.wait(0)]

    @property
    def queries(self) -> list[Query]:
        """Return the declared queries, whether they run here or not."""
        return list(self._queries.values())

    def close(self, timeout: float = 30.0) -> None:
        """End all jobs, watches and queries, and release their roles.

        Args:
            timeout: the longest wait for all functions together, in seconds. A role stays held
                until its function returns.
        """
        with self._lock:  # all watches and queries in the lists are started, so `wait` works
            self._is_closed = True
        end = time.monotonic() + timeout
        to_end: list[Any] = [*self._watches, *self._queries.values(), *self._jobs.values()]
        for service in to_end:
            service.cancel()
        for service in to_end:
            if not service.wait(max(end - time.monotonic(), 0.0)):
                log.error(
                    "%r still runs %g s after the close: its role stays held", service, timeout
                )
        self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _wait_for(job: Job[Any]) -> None:
    """Wait for the end of a job; on Ctrl-C, cancel it."""
    try:
        job.wait()
    except BaseException:
        job.cancel()
        job.wait(_STOP_TIMEOUT_S)
        raise


def _is_a_query(job_id: str) -> ConfigError:
    return ConfigError(f"job {job_id!r}: there is a query of this name")
