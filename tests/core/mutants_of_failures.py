"""Mutants of streams: who is to blame for a failure, and what it may cost."""

from __future__ import annotations

from mutants_of_streams import lua, python

OUTAGES = "streams/test_outages"
TRANSIENT_ERRORS = "streams/test_transient_errors"
CIRCUIT_BREAKER = "streams/test_circuit_breaker"
ERROR_LOG = "streams/test_error_log"
FAILURES_ON_SERVERS = "../integration/streams/test_failures"

FAILURES = [
    python(
        "an outage is blamed on an event",
        "streams/consumer/failure_handler",
        "if is_transient(error, (*policy.transient, *_BLAMELESS)):",
        "if isinstance(error, _BLAMELESS):",
        OUTAGES,
    ),
    python(
        "a partition waits for nothing before it is quarantined for an outage",
        "streams/consumer/failure_handler",
        "if now - self._waits_since >= policy.transient_for:",
        "if now >= self._waits_since:",
        OUTAGES,
    ),
    python(
        "an idle time is a part of the outage before it",
        "streams/consumer/failure_handler",
        "if has_come_further or self._owner.has_idled:",
        "if has_come_further:",
        OUTAGES,
    ),
    python(
        "a pause by an operator is a part of the outage before it",
        "streams/consumer/failure_handler",
        "max(since, owner.active_since)",
        "since",
        OUTAGES,
    ),
    python(
        "a pause by an operator counts as retrying",
        "streams/consumer/failure_handler",
        "max(self._failing[1], self._owner.active_since)",
        "self._failing[1]",
        OUTAGES,
    ),
    python(
        "after an outage events come one by one",
        "streams/consumer/failure_handler",
        "        owner.buffer.put_back()\n",
        "        owner.buffer.fail()\n",
        OUTAGES,
    ),
    python(
        "an event is given up as soon as it has failed so often",
        "streams/consumer/failure_handler",
        "if blamed is None or not self._has_failed_long(blamed) or times",
        "if blamed is None or times",
        OUTAGES,
    ),
    python(
        "one transient error makes a group of errors transient",
        "streams/transient_errors",
        "return all(is_transient(member, kinds) for member in error.exceptions)",
        "return any(is_transient(member, kinds) for member in error.exceptions)",
        TRANSIENT_ERRORS,
    ),
    python(
        "whatever a database refuses is an outage",
        "streams/transient_errors",
        "return error.statement is None and bool(names & could_not_connect)",
        "return True",
        TRANSIENT_ERRORS,
    ),
    python(
        "a timeout is transient where its cancellation met an outage",
        "streams/transient_errors",
        "cause = None if isinstance(cause, EventTimeout) else cause.__cause__",
        "cause = cause.__cause__",
        TRANSIENT_ERRORS,
    ),
    python(
        "a success between does not begin a new row",
        "streams/consumer/circuit_breaker",
        "            if not end:\n                break",
        "            if not end:\n                continue",
        CIRCUIT_BREAKER,
    ),
    python(
        "half of the last hundred may fail for ever",
        "streams/consumer/circuit_breaker",
        "if len(dead) * 2 >= LAST:",
        "if len(dead) >= LAST:",
        CIRCUIT_BREAKER,
    ),
    python(
        "records of a bad deploy are given up one by one",
        "streams/consumer/dead_lettering",
        "            if len(behind) == wanted:",
        "            if len(behind) > wanted:",
        OUTAGES,
    ),
    python(
        "an odd record at the end is given up at once",
        "streams/consumer/dead_lettering",
        "if now < (until := self._waits[1] + policy.retry_for):",
        "if now < (until := self._waits[1]):",
        OUTAGES,
    ),
    python(
        "a processor that catches all keeps its partition from the quarantine",
        "streams/consumer/grant_run",
        "            owner.dead_lettering.raise_verdict()\n",
        "",
        OUTAGES,
    ),
    python(
        "who catches its cancellation has processed its event",
        "streams/consumer/owner",
        "        if self.stopwatch.has_expired:\n            raise self.timed_out()",
        "        if False:\n            raise self.timed_out()",
        OUTAGES,
    ),
    python(
        "a batch has the time of one event",
        "streams/consumer/stopwatch",
        "self._until = self._now() + self.seconds * count",
        "self._until = self._now() + self.seconds",
        OUTAGES,
    ),
    python(
        "the wait for a commit is an event's time",
        "streams/consumer/owner",
        "        self.stopwatch.stop()  # Redis may be unavailable",
        "        pass  # Redis may be unavailable",
        FAILURES_ON_SERVERS,
    ),
    python(
        "each failure is logged with its traceback",
        "streams/consumer/error_log",
        "        if seen is None:",
        "        if True:",
        ERROR_LOG,
    ),
    python(
        "events in memory are given in spite of a pause",
        "streams/consumer/owner",
        "if self.stopwatch.has_expired or self._is_paused:",
        "if self.stopwatch.has_expired:",
        OUTAGES,
    ),
    python(
        "batches are given in spite of a pause",
        "streams/consumer/owner",
        "            if self._is_paused:\n                self._take_back(entries)",
        "            if False:\n                self._take_back(entries)",
        OUTAGES,
    ),
    lua(
        "a restart ends a pause",
        "take",
        "local paused = redis.call('HGET', at, 'paused') or ''",
        "local paused = ''",
        FAILURES_ON_SERVERS,
    ),
    lua(
        "an owner of before takes lost data for the truth",
        "unquarantine",
        "if token and fence and less(token, fence) then return {'stale', fence} end\n",
        "",
        FAILURES_ON_SERVERS,
    ),
    python(
        "an outage is over for the first partition that goes on",
        "streams/consumer/error_log",
        "if not self._waiting and seconds >= REPORT_INTERVAL_S:",
        "if seconds >= REPORT_INTERVAL_S:",
        ERROR_LOG,
    ),
    python(
        "what was finished before an outage ends it",
        "streams/consumer/error_log",
        "if self._waiting.get(role, finished) >= finished:",
        "if role not in self._waiting:",
        ERROR_LOG,
    ),
    python(
        "an outage goes on for a partition that another owner has",
        "streams/consumer/error_log",
        "        self._waiting.pop(role, None)\n",
        "        pass\n",
        ERROR_LOG,
    ),
    python(
        "a partition that was lost meanwhile is told to be quarantined",
        "streams/consumer/partition",
        '        else:\n            log.warning(\n                "%s was lost before',
        "        else:\n            self._note_quarantined(reason)\n            log.warning(\n"
        '                "%s was lost before',
        FAILURES_ON_SERVERS,
    ),
    lua(
        "events are given of a place that Redis has lost",
        "take",
        "(before(last, offset) or not found[1])",
        "before(last, offset)",
        FAILURES_ON_SERVERS,
    ),
]
