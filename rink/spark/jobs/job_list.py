"""Poll a list of jobs, and run the jobs whose roles are held here."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rink.core.retry_delay import backoff
from rink.errors import ConfigError
from rink.spark.jobs.job import Job, JobState

if TYPE_CHECKING:
    from rink.rink import Rink

log = logging.getLogger("rink.spark")

ListJobs = Callable[[], Iterable[str]]
MAX_PAUSE_S = 60.0


class JobListWatch:
    """Run listed jobs from a polling thread; `JobRunner.watch` makes it.

    Args:
        start: starts a job if this driver owns its role, and calls its last argument at the job's
            end.
        r: the group of drivers.
        list_jobs: the user's function that lists jobs.
        function: the user's function for each job.
        every: seconds between two polls.
        at_once: the maximum number of jobs that run at once.
        is_useless: returns whether no job can run here any more.
    """

    def __init__(
        self,
        start: Callable[[str, Callable[[Job[Any]], Any], Callable[[], None]], Job[Any] | None],
        r: Rink,
        list_jobs: ListJobs,
        function: Callable[[Job[Any]], Any],
        *,
        every: float,
        at_once: int,
        is_useless: Callable[[], bool],
    ) -> None:
        self._start_job = start
        self._rink = r
        self._list = list_jobs
        self._function = function
        self._every = every
        self._at_once = at_once
        self._is_useless = is_useless
        self._news = threading.Event()
        self._grants = r._watch_grants(self._news.set)  # noqa: SLF001 - of this package
        self._is_cancelled = False
        self._running: dict[str, Job[Any]] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="rink-jobs-watch", daemon=True)

    def start(self) -> None:
        """Start the polling thread; call this once."""
        self._thread.start()

    def cancel(self) -> None:
        """Stop polling. The runner ends the running jobs."""
        self._is_cancelled = True
        self._news.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with self._grants:
            self._serve()

    def _serve(self) -> None:
        failures = 0
        while not self._is_cancelled:
            self._news.clear()  # before the poll, so that a change meanwhile causes another poll
            try:
                if self._rink._is_ranked():  # noqa: SLF001 - no rank, no jobs
                    self._look()
                elif self._is_useless():
                    return
                failures = 0
            except BaseException:  # sys.exit(), too, would end the thread without a message
                if self._is_useless():  # the list may be read with Spark
                    return
                failures += 1
                log.exception("the list of pending jobs could not be read, retrying")
            pause = backoff(failures, "list", MAX_PAUSE_S) if failures else self._every
            self._news.wait(min(pause, self._next_try()))

    def _look(self) -> None:
        self._collect()
        listed = self._listed()
        for job_id in self._failures.keys() - listed.keys():
            del self._failures[job_id]
        for job_id, listed_id in listed.items():
            if self._is_cancelled or len(self._running) >= self._at_once:
                return
            if job_id in self._running or time.monotonic() < self._not_before.get(job_id, 0.0):
                continue
            try:
                _check_id(listed_id)
                job = self._start_job(job_id, self._function, self._news.set)
            except ConfigError as error:  # the jobs after this one must not wait for it
                self._failed(job_id, error)
                continue
            if job is not None:
                self._running[job_id] = job

    def _listed(self) -> dict[str, Any]:
        """Return the listed ids by their names, or raise ConfigError."""
        listed: object = self._list()
        if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
            raise ConfigError(
                f"list_pending_jobs returned {listed!r}: it must return a list of job ids"
            )
        return {str(job_id): job_id for job_id in listed}

    def _collect(self) -> None:
        for job_id, job in list(self._running.items()):
            if not job.wait(0):
                continue
            del self._running[job_id]
            if job.error is not None and job.state is JobState.FAILED:
                self._failed(job_id, job.error)
                continue
            # A finished job should leave the list, which may take a moment.
            pause = self._every if job.state is JobState.SUCCEEDED else 0.0
            self._failures.pop(job_id, None)
            self._not_before[job_id] = time.monotonic() + pause

    def _failed(self, job_id: str, error: BaseException) -> None:
        failures = self._failures[job_id] = self._failures.get(job_id, 0) + 1
        pause = backoff(failures, job_id, MAX_PAUSE_S)
        self._not_before[job_id] = time.monotonic() + pause
        log.error("job %r failed, retrying in %.1f s", job_id, pause, exc_info=error)

    def _next_try(self) -> float:
        now = time.monotonic()
        self._not_before = {job_id: at for job_id, at in self._not_before.items() if at > now}
        return max(min(self._not_before.values(), default=now + self._every) - now, 0.01)

    def __repr__(self) -> str:
        return f"<Watch of {self._list!r}, {len(self._running)} running>"


def _check_id(job_id: object) -> None:
    if job_id is None or isinstance(job_id, bytes | tuple | list | dict):
        raise ConfigError(
            f"job {job_id!r}: a job id must be text (if the list comes from rows, give one column)"
        )
