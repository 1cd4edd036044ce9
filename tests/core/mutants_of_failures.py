"""Mutants of streams: who is to blame for a failure, and what it may cost."""

from __future__ import annotations

from mutants_of_streams import lua, python

OUTAGES = "streams/test_outages"
TRANSIENT = "streams/test_transient"
BREAKER = "streams/test_breaker"
COMPLAINTS = "streams/test_complaints"
FAILURES_ON_SERVERS = "../integration/streams/test_failures"

FAILURES = [
    python(
        "an outage is blamed on an event",
        "judge",
        "if is_transient(error, (*policy.transient, *_SURROUNDINGS)):",
        "if isinstance(error, _SURROUNDINGS):",
        OUTAGES,
    ),
    python(
        "a partition waits for nothing before it is quarantined for an outage",
        "judge",
        "if now - self._waits_since >= policy.transient_for:",
        "if now >= self._waits_since:",
        OUTAGES,
    ),
    python(
        "an idle time is a part of the outage before it",
        "judge",
        "if has_come_further or self._owner.has_idled:",
        "if has_come_further:",
        OUTAGES,
    ),
    python(
        "a pause by an operator is a part of the outage before it",
        "judge",
        "max(since, owner.active_since)",
        "since",
        OUTAGES,
    ),
    python(
        "a pause by an operator counts as retrying",
        "judge",
        "max(self._failing[1], self._owner.active_since)",
        "self._failing[1]",
        OUTAGES,
    ),
    python(
        "after an outage events come one by one",
        "judge",
        "        owner.inbox.put_back()\n",
        "        owner.inbox.fail()\n",
        OUTAGES,
    ),
    python(
        "an event is given up as soon as it has failed so often",
        "judge",
        "if blamed is None or not self._has_failed_long(blamed) or times",
        "if blamed is None or times",
        OUTAGES,
    ),
    python(
        "one transient error makes a group of errors transient",
        "transient",
        "return all(is_transient(one, kinds) for one in error.exceptions)",
        "return any(is_transient(one, kinds) for one in error.exceptions)",
        TRANSIENT,
    ),
    python(
        "whatever a database refuses is an outage",
        "transient",
        "return error.statement is None and bool(names & could_not_connect)",
        "return True",
        TRANSIENT,
    ),
    python(
        "a timeout is transient where its cancellation met an outage",
        "transient",
        "cause = None if isinstance(cause, EventTimeout) else cause.__cause__",
        "cause = cause.__cause__",
        TRANSIENT,
    ),
    python(
        "a success between does not begin a new row",
        "breaker",
        "            if not end:\n                break",
        "            if not end:\n                continue",
        BREAKER,
    ),
    python(
        "half of the last hundred may fail for ever",
        "breaker",
        "if len(dead) * 2 >= LAST:",
        "if len(dead) >= LAST:",
        BREAKER,
    ),
    python(
        "records of a bad deploy are given up one by one",
        "giving_up",
        "            if len(behind) == wanted:",
        "            if len(behind) > wanted:",
        OUTAGES,
    ),
    python(
        "an odd record at the end is given up at once",
        "giving_up",
        "if now < (until := self._waits[1] + policy.retry_for):",
        "if now < (until := self._waits[1]):",
        OUTAGES,
    ),
    python(
        "a processor that catches all keeps its partition from the quarantine",
        "partition",
        "            owner.giving_up.raise_verdict()\n",
        "",
        OUTAGES,
    ),
    python(
        "who catches its cancellation has processed its event",
        "owner",
        "        if self.stopwatch.has_expired:\n            raise self.timed_out()",
        "        if False:\n            raise self.timed_out()",
        OUTAGES,
    ),
    python(
        "a batch has the time of one event",
        "stopwatch",
        "self._until = self._now() + self.seconds * count",
        "self._until = self._now() + self.seconds",
        OUTAGES,
    ),
    python(
        "the wait for a commit is an event's time",
        "owner",
        "        self.stopwatch.stop()  # Redis may be away for long",
        "        pass  # Redis may be away for long",
        FAILURES_ON_SERVERS,
    ),
    python(
        "each failure is logged with its traceback",
        "complaints",
        "        if seen is None:",
        "        if True:",
        COMPLAINTS,
    ),
    python(
        "events in memory are given in spite of a pause",
        "owner",
        "if self.stopwatch.has_expired or self._is_paused:",
        "if self.stopwatch.has_expired:",
        OUTAGES,
    ),
    python(
        "batches are given in spite of a pause",
        "owner",
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
        "complaints",
        "if not self._waiting and seconds >= REPORT_INTERVAL_S:",
        "if seconds >= REPORT_INTERVAL_S:",
        COMPLAINTS,
    ),
    python(
        "what was finished before an outage ends it",
        "complaints",
        "if self._waiting.get(role, finished) >= finished:",
        "if role not in self._waiting:",
        COMPLAINTS,
    ),
    python(
        "an outage goes on for a partition that another owner has",
        "complaints",
        "        self._waiting.pop(role, None)\n",
        "        pass\n",
        COMPLAINTS,
    ),
    python(
        "a partition that was lost meanwhile is told to be quarantined",
        "partition",
        '        else:\n            log.warning(\n                "%s was lost before',
        '        else:\n            self._note_quarantined(reason)\n            log.warning(\n                "%s was lost before',
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
