"""Leave the group when a driver can run no jobs any more."""

from __future__ import annotations

import abc
import logging
import threading
import time

from pyspark.sql import SparkSession

from rink.errors import ClosedError, RinkError
from rink.rink import Rink
from rink.spark.jobs.tags import is_gone

log = logging.getLogger("rink.spark")
_LOOK_INTERVAL_S = 1.0


class SparkStopped(RinkError):  # noqa: N818 - like RoleLost, the name says what happened
    """Report that this driver's JVM is gone or its SparkContext was stopped."""


class DriverEnd(abc.ABC):
    """Record why a driver ended: it was closed, or can run no jobs."""

    def __init__(self, spark: SparkSession, r: Rink) -> None:
        self.spark = spark
        self._rink = r
        self._lock = threading.Lock()
        self._is_closed = False
        self._over = threading.Event()
        self._error: BaseException | None = None

    @abc.abstractmethod
    def close(self, timeout: float = 30.0) -> None:
        """End all jobs and queries that run here."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until this is closed, at most `timeout` seconds.

        Return whether it is closed. The main thread of a driver waits here.

        Raises:
            SparkStopped: no job can run here any more. End the process: its roles go to another
                driver.
            RinkError: the group was left, or can run no query here. The message says why.
        """
        end = time.monotonic() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        while not self._over.wait(max(0.0, min(_LOOK_INTERVAL_S, end - time.monotonic()))):
            if self._group_has_ended() or time.monotonic() >= end:
                break
        if self._error is not None:
            raise self._error
        return self._over.is_set()

    def is_useless(self) -> bool:
        """Return whether no job can run here any more. If none can, give up."""
        if self._is_closed or self._group_has_ended():
            return True
        if not is_gone(self.spark):
            return False
        self.give_up(
            SparkStopped("Spark's JVM is gone, or its SparkContext was stopped: start a new driver")
        )
        return True

    def _group_has_ended(self) -> bool:
        """Return whether the group was left, or its engine failed; if so, give up."""
        error = self._rink._ended()  # noqa: SLF001 - a private method of this package
        if error is not None:
            self.give_up(error)
        return error is not None

    def give_up(self, error: BaseException) -> None:
        """End all jobs, leave the group, and make `wait` raise this error."""
        with self._lock:
            if self._error is not None or self._is_closed:
                return
            self._error, self._is_closed = error, True
        self._over.set()
        log.error("this driver leaves group %r: %s", self._rink.group, error)
        threading.Thread(target=self._leave, name="rink-jobs-leave", daemon=True).start()

    def _leave(self) -> None:
        self.close()
        self._rink.leave(now=True)  # nothing runs here any more, so release all roles at once

    def _refuse_closed(self) -> None:
        if self._is_closed:
            why = f": {self._error}" if self._error is not None else ""
            raise ClosedError(f"this JobRunner was closed{why}") from self._error
