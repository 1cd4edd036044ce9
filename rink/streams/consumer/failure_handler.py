"""Decide which event an error of a processor blames, and what follows."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import attrs

from rink._cancel import ENDS_PROCESS, is_ending
from rink.errors import RinkError, StateError, UsageError
from rink.event_loops import loop_time
from rink.redis.error_map import first_error
from rink.redis.errors import RedisError
from rink.streams.consumer.buffer import StreamEntry
from rink.streams.consumer.error_log import ErrorLog
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.owner import GrantOwner
from rink.streams.errors import EventTimeout, PartitionFull
from rink.streams.failure_policy import Quarantined, letter_of, said
from rink.streams.processor import Processor
from rink.streams.transient_errors import is_transient

log = logging.getLogger("rink.streams")

_BLAMELESS = (RedisError, PartitionFull, UsageError)
"""Errors of Redis, of back-pressure or of the program; they blame no event, even if they last."""


class NoProgress(Exception):  # noqa: N818 - not an error of an event
    """A processor returned, and no event is done."""


@attrs.define(eq=False)
class FailureHandler:
    """Judge the errors of one owner's processor.

    The clocks of `retry_for` and `transient_for` start again with each owner, and after a pause by
    an operator. So an event may be retried longer than these times, but never shorter.
    """

    _processor: Processor[Any]
    _owner: GrantOwner[Any]
    _error_log: ErrorLog
    _metrics: WorkerMetrics
    # The time since which all errors are transient.
    _waits_since: float | None = attrs.field(init=False, default=None)
    # The event that fails alone, and the time since which it fails.
    _failing: tuple[str, float] = attrs.field(init=False, default=("", 0.0))

    def note_success(self) -> None:
        """Note that the processor returned without an error."""
        self._waits_since = None

    def handle(self, error: Exception, *, has_come_further: bool) -> bool:
        """Put the in-flight events back, and handle the event to blame.

        Args:
            error: the processor's error.
            has_come_further: this call of the processor had events done before the error.

        Returns:
            True if an event was given up.

        Raises:
            Quarantined: the partition waits for an operator.
            StateError: the partition waits until the data in Redis is corrected.
        """
        # The errors that blame no event are checked first. Then `fail` puts the events back to come
        # again one by one, and blames an event only if it came alone. So an event is given up only
        # after an error that is certainly its own, and only if both limits of the policy are
        # reached.
        role, policy = self._owner.place.role, self._processor.policy
        if has_come_further or self._owner.has_idled:  # the transient errors have ended meanwhile
            self._waits_since = None
        if isinstance(error, NoProgress):
            log.warning("%s: %s", role, error)
            return False
        if is_transient(error, (*policy.transient, *_BLAMELESS)):
            self._wait(error, is_bounded=not isinstance(error, _BLAMELESS))
            return False
        self._waits_since = None
        blamed, times = self._owner.buffer.fail()
        self._owner.commits.note_finished()
        at = blamed.id if blamed else ""
        if isinstance(error, StateError):
            self._error_log.log(error, role, at)
            raise error
        if blamed is None or not self._has_failed_long(blamed) or times < policy.max_attempts:
            both = f"max_attempts={policy.max_attempts} and retry_for={policy.retry_for:g} s"
            then = (
                "in-flight events are tried again; one that keeps failing is given up after both "
                f"{both}"
            )
            self._error_log.log(error, role, at, then)
            return False
        self._error_log.log(error, role, at)
        self._owner.dead_lettering.give_up(blamed.id, letter_of(error, times))
        return True

    def _wait(self, error: Exception, *, is_bounded: bool) -> None:
        """Put the events back without blame, to come together as before."""
        owner, policy = self._owner, self._processor.policy
        in_hand = owner.buffer.in_hand
        owner.buffer.put_back()
        owner.commits.note_finished()
        self._metrics.waited(owner.place)
        self._error_log.note_wait(owner.place.role, owner.buffer.count_finished)
        then = "no event is blamed, and the processor is called again"
        self._error_log.log(error, owner.place.role, then=then)
        if not is_bounded:
            return
        now = loop_time()
        since = now if self._waits_since is None else self._waits_since
        self._waits_since = max(since, owner.active_since)
        if now - self._waits_since >= policy.transient_for:
            # An operator can skip one event, so the error names an event only if there is just one.
            event = f"event {in_hand[0].id} of " if len(in_hand) == 1 else "partition "
            raise Quarantined(
                f"{event}{owner.place.role!r}, processor {self._processor.name!r}: "
                f"{type(error).__name__}: {said(error)}: a transient error that lasted longer than "
                f"transient_for={policy.transient_for:g} s"
            )

    def _has_failed_long(self, blamed: StreamEntry) -> bool:
        if self._failing[0] != blamed.id:
            self._failing = (blamed.id, loop_time())
        since = max(self._failing[1], self._owner.active_since)
        return loop_time() - since >= self._processor.policy.retry_for


def to_handle(
    error: BaseException, owner: GrantOwner[Any], work: asyncio.Task[None]
) -> BaseException:
    """Return the error to handle for the error that ended a processor.

    `work` is the task that called the processor.
    """
    # A verdict comes first: it was decided before, and the processor may have caught or replaced
    # it. A cancellation ends the processor only if it comes from Rink, which `is_ending` shows. Any
    # other cancellation is a timeout of the stopwatch or of the user's code.
    if owner.dead_lettering.verdict is not None:
        return owner.dead_lettering.verdict
    if isinstance(error, BaseExceptionGroup):
        error = first_error(error)
    if not is_ending(work) and not isinstance(error, (RinkError, *ENDS_PROCESS)):
        if owner.stopwatch.has_expired:
            return owner.timed_out()
        if isinstance(error, asyncio.CancelledError):
            return EventTimeout(
                "the processor was cancelled, and not by Rink: a time limit has passed"
            )
    if isinstance(error, (Exception, asyncio.CancelledError, *ENDS_PROCESS)):
        return error
    return RuntimeError(f"the processor raised {type(error).__name__}: {said(error)}")
