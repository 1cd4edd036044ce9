"""`JobRunner`: which jobs and queries this driver runs, by the roles that it holds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from pyspark.sql import SparkSession

from rink.engine.callers import made_at
from rink.errors import ClosedError, ConfigError, RinkError
from rink.functions import check_plain
from rink.rink import Rink
from rink.roles import Role
from rink.settings import check_count, check_seconds
from rink.spark.jobs.job import Job, State
from rink.spark.jobs.queries import Fenced, Query, Starts
from rink.spark.jobs.tags import is_gone
from rink.spark.jobs.watching import ListJobs, Watch

T = TypeVar("T")
Take = Callable[[str], Role | None]
"""Takes the role of a job; None where it is another driver's."""
log = logging.getLogger("rink.spark")


RANK_TIMEOUT_S = 300.0
"""Longer than the default `rebalance_delay` and the default TTL of a killed driver together."""
_LOOKS_S = 1.0


class SparkStopped(RinkError):  # noqa: N818 - like RoleLost, it says what happened
    """Nothing can run in this driver any more: its JVM is gone, or its SparkContext was stopped."""


class JobRunner:
    """Runs Spark jobs and streaming queries while this driver holds their roles.

    Args:
        spark: the session of this driver.
        r: a joined `rink.Rink` (the blocking one). Its members are the drivers; leave it after this is closed. Where
            the JVM is gone this leaves it at once, so that another driver gets its roles; `wait` raises then.
    """

    def __init__(self, spark: SparkSession, r: Rink) -> None:
        if not isinstance(r, Rink):
            raise ConfigError(f"a JobRunner takes a rink.Rink, the blocking one, and not {r!r}")
        self.spark = spark
        self._rink = r
        self._lock = threading.Lock()
        self._jobs: dict[str, Job[Any]] = {}
        self._watches: list[Watch] = []
        self._queries: dict[str, Query] = {}
        self._is_closed = False
        self._over = threading.Event()
        self._error: BaseException | None = None
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
        was ranked once. From then on a call looks once and returns at once: a role that is just
        being handed over to this driver gives None, too. `run` waits for such a role.

        Args:
            job_id: the role's name.
            function: called with the job in a thread of its own. Its Spark jobs carry a tag, and are cancelled when
                the role is lost; threads that it starts should be InheritableThreads.
            timeout: seconds that this driver's first rank is waited for; None: as long as it takes.

        Returns:
            None where the role is another driver's, or the job runs here already.

        Raises:
            RoleTimeout: this driver was not ranked within `timeout`; the message says why.
            ClosedError: this runner, or the group, is closed.
            ConfigError: there is a query of this name: each needs a role of its own. Or the
                function cannot be called with a job, or the timeout is not a duration.
        """
        check_plain(f"job {job_id!r}: function", function, "job")
        self._was_ranked = self._was_ranked or self._rink._is_ranked()  # noqa: SLF001 - a friend of the group
        take = self._rink.get_role if self._was_ranked else self._when_known(timeout)
        return self._start(job_id, function, lambda: None, take)

    def _when_known(self, timeout: float | None) -> Take:
        """Return what takes a role once it is known whether it is mine."""
        if timeout is not None:
            check_seconds("timeout", timeout)

        def take(job_id: str) -> Role | None:
            role = self._rink._role_if_mine(job_id, timeout, self._refuse_closed)  # noqa: SLF001 - a friend of the group
            self._was_ranked = True
            return role

        return take

    def _start(
        self,
        job_id: str,
        function: Callable[[Job[T]], T],
        on_end: Callable[[], None],
        take: Take,
    ) -> Job[T] | None:
        self._refuse_closed()
        if job_id in self._queries:
            raise _is_a_query(job_id)
        if self._runs(job_id):
            return None
        role = take(job_id)
        if role is None:
            return None
        role._handle.made_at = made_at()  # noqa: SLF001 - a friend of the handle

        def ended() -> None:
            if job.state is State.FAILED:
                self.is_useless()
            on_end()

        job = Job(self.spark, role, function, ended)
        with self._lock:
            is_query = job_id in self._queries  # one may have been declared meanwhile
            if self._is_closed or is_query or self._runs(job_id):
                role.release()
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

        It waits until this driver is ranked. If the role is its own then, it waits until the driver
        that had it before has let go. So None always means that the job is not for this driver.

        Args:
            job_id: the role's name.
            function: called with the job, as in `start`.
            timeout: seconds that rank and role are waited for, and not the job; None: as long as it
                takes.

        Returns:
            The job, which has ended: its `result()` returns or raises what the function did. None
            where the role is another driver's, or the job runs here already.

        Raises:
            RoleTimeout: rank or role were not there within `timeout`; the message says why.
            ClosedError, ConfigError: as `start` says.
        """
        check_plain(f"job {job_id!r}: function", function, "job")
        job = self._start(job_id, function, lambda: None, self._when_known(timeout))
        if job is not None:
            job.wait()
        return job

    def watch(
        self,
        list_pending_jobs: ListJobs,
        function: Callable[[Job[Any]], Any],
        *,
        every: float = 10.0,
        at_once: int = 4,
    ) -> Watch:
        """Run, from now on, each listed job whose role is mine.

        The list is asked for as soon as this driver is ranked, after `every` seconds, when a job of
        this watch has ended, and when the group has changed: this driver may have won a role.

        Args:
            list_pending_jobs: returns the ids of the jobs that are to be done; one that is done is to be listed no more.
            function: called with each job, as in `start`.
            every: seconds between two looks at the list, at most.
            at_once: how many jobs run here beside each other.

        Raises:
            ConfigError: the function cannot be called with a job, or a setting cannot be used.
        """
        check_plain("watch: function", function, "job")
        watch = Watch(
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

    def query(self, name: str, *, guards: Sequence[Fenced] = ()) -> Callable[[Starts], Starts]:
        """Start a streaming query by a function when its role is granted.

            @jobs.query("delays", guards=[guard])
            def delays(job):
                return (job.spark.readStream.format("rink").options(**fence(job.role))...
                        .writeStream.foreachBatch(fenced(write, guard, job.role))
                        .option("checkpointLocation", ...).start())

        The query is stopped when the role is lost, and started anew, from its checkpoint, under the next grant: here
        or by another driver. When it fails it is started again under the same grant, after growing pauses.

        Args:
            name: the role's.
            guards: their fence is raised before the function is called: guards of `rink.guards`, and a `FencedStream`
                for each stream that the query writes.

        Raises:
            ConfigError: there is a query, or a running job, of this name: each needs a role of its own.
        """
        self._refuse_closed()

        def declare(function: Starts) -> Starts:
            with self._lock:
                self._refuse_closed()
                if name in self._queries or self._runs(name):
                    what = "query" if name in self._queries else "job"
                    raise ConfigError(
                        f"there is a {what} {name!r} already: each has a role of its own"
                    )
                query = self._queries[name] = Query(
                    self.spark, self._rink, name, function, tuple(guards), self
                )
                query.start()
            return function

        return declare

    @property
    def jobs(self) -> list[Job[Any]]:
        """The jobs that run here."""
        return [job for job in list(self._jobs.values()) if not job.wait(0)]

    @property
    def queries(self) -> list[Query]:
        """The queries that were declared, running here or not."""
        return list(self._queries.values())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until this is closed, as the main thread of a driver does; whether it is.

        Args:
            timeout: seconds.

        Raises:
            SparkStopped: nothing can run here any more. End the process: its roles have gone to another driver.
            RinkError: no query can be run here by this group, and why.
        """
        end = time.monotonic() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        while not self._over.wait(max(0.0, min(_LOOKS_S, end - time.monotonic()))):
            if self._group_has_ended() or time.monotonic() >= end:
                break
        if self._error is not None:
            raise self._error
        return self._over.is_set()

    def close(self, timeout: float = 30.0) -> None:
        """End all jobs, watches and queries, and release their roles.

        Args:
            timeout: seconds, in all, that functions which do not return are waited for; their roles stay until they
                do.
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

    def is_useless(self) -> bool:
        """Return whether nothing can run here any more, or this was closed.

        If nothing can run, this gives up.
        """
        if self._is_closed or self._group_has_ended():
            return True
        if not is_gone(self.spark):
            return False
        self.give_up(
            SparkStopped(
                "Spark's JVM is gone, or its SparkContext was stopped: start this driver anew"
            )
        )
        return True

    def _group_has_ended(self) -> bool:
        """Return whether the group was left, or its engine failed.

        Nobody else may notice that here. If so, this gives up.
        """
        error = self._rink._ended()  # noqa: SLF001
        if error is not None:
            self.give_up(error)
        return error is not None

    def give_up(self, error: BaseException) -> None:
        """End all, leave the group, and have `wait` raise this."""
        with self._lock:
            if self._error is not None or self._is_closed:
                return
            self._error, self._is_closed = error, True
        self._over.set()
        log.error("this driver leaves group %r: %s", self._rink.group, error)
        threading.Thread(target=self._leave, name="rink-jobs-leave", daemon=True).start()

    def _leave(self) -> None:
        self.close()
        self._rink.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _refuse_closed(self) -> None:
        if self._is_closed:
            why = f": {self._error}" if self._error is not None else ""
            raise ClosedError(f"this JobRunner was closed{why}") from self._error


def _is_a_query(job_id: str) -> ConfigError:
    return ConfigError(f"job {job_id!r}: there is a query of this name")
