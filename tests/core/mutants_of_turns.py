"""Break the promises of a sidecar: ends, turns, tokens, former lives."""

from __future__ import annotations

from mutant import Mutant

TESTS = {
    "consumer_turns": ("sidecar/test_consumer_turns", "sidecar/test_consumer_turns_presence"),
    "consumers": ("sidecar/test_consumer_turns", "sidecar/test_consumer_turns_presence"),
    "membership": ("sidecar/test_member_grants",),
    "program": ("sidecar/test_member_grants",),
    "clock": ("sidecar/test_member_grants",),
    "http_api": ("sidecar/test_http_api",),
    "service": ("sidecar/test_http_api",),
    "event_stream": ("sidecar/test_http_api",),
    "answers": ("sidecar/test_http_api",),
}


def of(module: str, what: str, old: str, new: str, *tests: str) -> Mutant:
    """Return one in a module of `rink/sidecar`."""
    return Mutant(what, f"rink/sidecar/{module}.py", old, new, tests or TESTS[module])


TURNS = [
    of(
        "consumer_turns",
        "a turn is let go when its stream closes",
        "        if by_consumer and consumer.releases_on_close:\n",
        "        if by_consumer:\n",
    ),
    of(
        "consumer_turns",
        "a stream that the sidecar closes counts as an answer",
        "        if by_consumer and consumer.releases_on_close:\n",
        "        if consumer.releases_on_close:\n",
    ),
    of(
        "consumer_turns",
        "a turn is let go when its grace is over",
        "        passed = [turn for turn in consumer.turns.values() if now_ms >= turn.until_ms]\n",
        "        passed = [\n"
        "            turn for turn in consumer.turns.values() if now_ms >= turn.until_ms or (\n"
        "            turn.lost_at_ms is not None and now_ms >= turn.lost_at_ms + self.grace_ms)\n"
        "        ]\n",
    ),
    of(
        "consumer_turns",
        "an end is moved on beyond the grace",
        "            return min(until_ms, turn.lost_at_ms + self.grace_ms)\n",
        "            return until_ms\n",
    ),
    of(
        "consumer_turns",
        "an end is moved on by another session",
        "        if turn.lease != self._lease:\n",
        "        if False:\n",
    ),
    of(
        "consumer_turns",
        "an end is moved on beyond the deadline",
        "        until_ms = min(now_ms + self.hold_ms, self._deadline_ms)\n        if turn",
        "        until_ms = now_ms + self.hold_ms\n        if turn",
        "sidecar/test_consumer_turns_walks",
        "sidecar/test_consumer_turns",
    ),
    of(
        "consumer_turns",
        "the first end lies beyond the deadline",
        "            until_ms = min(now_ms + self.hold_ms, self._deadline_ms)\n            if not",
        "            until_ms = now_ms + self.hold_ms\n            if not",
    ),
    of(
        "consumer_turns",
        "an end goes back",
        "            if until_ms > turn.until_ms:\n",
        "            if until_ms != turn.until_ms:\n",
    ),
    of(
        "consumer_turns",
        "a renewal moves an end on that has passed",
        '        """Note a sign of life, and move the ends on."""\n'
        "        self._expire(consumer, now_ms)\n",
        '        """Note a sign of life, and move the ends on."""\n',
    ),
    of(
        "consumer_turns",
        "a turn is let go a millisecond before its end",
        "if now_ms >= turn.until_ms]\n",
        "if now_ms + 1 >= turn.until_ms]\n",
    ),
    of(
        "consumer_turns",
        "a stream that was replaced closes the one after it",
        "        if consumer.is_forgotten or consumer.stream != stream:\n",
        "        if consumer.is_forgotten:\n",
    ),
    of(
        "consumer_turns",
        "an answer for an earlier turn ends a later one",
        "        if turn is not None and token in (None, turn.token):\n",
        "        if turn is not None:\n",
    ),
    of(
        "consumer_turns",
        "a role goes to a consumer that cannot be told",
        "            if not consumer.is_present(now_ms) or until_ms <= now_ms:\n",
        "            if until_ms <= now_ms:\n",
    ),
    of(
        "consumers",
        "an open stream stands for a program that does not renew",
        "        if self.alive_ms is not None:\n",
        "        if self.alive_ms is not None and self.stream is None:\n",
    ),
    of(
        "consumer_turns",
        "a role with a turn is waited for again",
        "        if seat.turn is None and not seat.is_wanted:\n",
        "        if not seat.is_wanted:\n",
    ),
    of(
        "consumer_turns",
        "a stream counts as an open call",
        "        consumer.stream, consumer.calls = self._streams, 0",
        "        consumer.stream = self._streams",
        "sidecar/test_http_api",
    ),
    of(
        "consumer_turns",
        "a forgotten consumer is queued for a role",
        "        if consumer.is_forgotten:\n            return role in consumer.over\n",
        "",
    ),
    of(
        "consumer_turns",
        "a call that is given up lets its turn go",
        "        else:\n            consumer.is_cut = True\n",
        "        else:\n            self.release_all(consumer, 'its call was given up')\n",
        "sidecar/test_http_api",
    ),
    of(
        "consumer_turns",
        "a call that is given up is a sign of life",
        "        if is_answered:\n            self._hear(consumer, now_ms)\n",
        "        if True:\n            self._hear(consumer, now_ms)\n",
        "sidecar/test_http_api",
    ),
    of(
        "membership",
        "the token is not raised between consumers",
        "token_above=self._last_token",
        "token_above=0",
    ),
    of(
        "membership",
        "the token of a turn is not noted",
        "        self._last_token = max(self._last_token, handle.token)\n",
        "",
    ),
    of(
        "membership",
        "a grant of an ended session is told",
        "handle.token, lambda: handle.is_held)\n",
        "handle.token)\n",
    ),
    of(
        "membership",
        "a handle is released with its loss",
        "        await handle.lost.wait()\n",
        "        await handle.lost.wait()\n        self.let_go(role)\n",
    ),
    of(
        "membership",
        "a handle that comes after its wait is kept",
        "            handle.release()\n            return\n",
        "            return\n",
    ),
    of(
        "program",
        "a sidecar that fails revokes its lease",
        "        os._exit(1)\n",
        "        raise\n",
    ),
    of(
        "program",
        "a third signal revokes the lease",
        "            os._exit(128 + number)\n",
        "            self._stop.set()\n",
    ),
    of(
        "clock",
        "an end is rounded up",
        "    return math.floor(seconds * 1000)\n",
        "    return math.ceil(seconds * 1000)\n",
    ),
    of(
        "http_api",
        "a grant of a former life is adopted",
        "            raise Refused(410, UNKNOWN_GRANT)\n        return consumer\n",
        '            consumer = Consumer("former", grant)\n'
        "            consumer.calls = 1\n"
        "            self._service.hold(consumer, [])\n"
        "        return consumer\n",
    ),
    Mutant(
        "a restarted sidecar takes over what its former life held",
        "rink/engine/requests.py",
        "            (Compare(key, TxnTarget.MOD, effect.compare),),\n",
        "            (Compare(key, TxnTarget.MOD, effect.compare),) if effect.compare else (),\n",
        ("sidecar/test_former_lives",),
    ),
    of(
        "answers",
        "a released turn is told again by a stream",
        "            if isinstance(event, Granted) and not turn.is_over:\n",
        "            if isinstance(event, Granted):\n",
    ),
    of(
        "answers",
        "a renewal does not say that an end has passed",
        "    turns = (*consumer.turns.values(), *consumer.unanswered.values())\n",
        "    turns = tuple(consumer.turns.values())\n",
    ),
    of(
        "consumer_turns",
        "an end that passes without a loss is told to nobody",
        "                self._effects.append(TurnLost(turn))\n        if not consumer.turns",
        "        if not consumer.turns",
    ),
    of(
        "consumer_turns",
        "the pod gives a lost role up for good",
        "            if consumer.is_pod:\n"
        "                self._queue(consumer, turn.role)\n                continue\n",
        "",
    ),
    of(
        "consumer_turns",
        "entries of forgotten consumers stay in the schedule",
        "2 * len(self.consumers) + MAX_STALE_ENTRIES:",
        "10**9:",
    ),
    of(
        "consumer_turns",
        "a consumer without roles stays as long as it said",
        "            if now_ms >= consumer.heard_ms + self.hold_ms:\n",
        "            if now_ms >= consumer.present_until_ms:\n",
    ),
    of(
        "consumer_turns",
        "a role that nobody present waits for is waited for again",
        "        self._let_go(role, any(consumer.is_present(now_ms) for consumer in queue))\n",
        "        self._let_go(role)\n",
    ),
    of(
        "consumer_turns",
        "a consumer that comes back is in no queue any more",
        "        for role in consumer.waiting:\n            self._want(role, self._seats[role])\n",
        "",
    ),
    of(
        "consumer_turns",
        "a grant to a program without a stream is a sign of life",
        "                if consumer.is_open:  # it",
        "                if True:  # it",
    ),
    of(
        "consumers",
        "a program that hangs gets one role after the other",
        "        if self.turns and self.alive_ms is not None:\n",
        "        if False:\n",
    ),
    of(
        "consumer_turns",
        "an answer for an earlier turn answers a later loss",
        "        elif unanswered is not None and token in (None, unanswered.token):\n",
        "        elif unanswered is not None:\n",
    ),
    of(
        "consumer_turns",
        "a consumer that answers its only turn is forgotten at once",
        "            self._hear(consumer, now_ms)\n        self._schedule(consumer, now_ms)\n"
        "        return role",
        "            pass\n        self._schedule(consumer, now_ms)\n        return role",
    ),
    of(
        "http_api",
        "a hold waits for a sidecar that has left",
        "asyncio.create_task(event.wait()) for event in (granted, left))",
        "asyncio.create_task(event.wait()) for event in (granted,))",
    ),
    of(
        "service",
        "a stream that is opened when the sidecar has left waits for ever",
        "        if self._bye:\n            self._end_inbox(inbox, self._bye)\n",
        "",
    ),
    of(
        "service",
        "the log has raw names of roles",
        "log.info(text, json.dumps(role), json",
        "log.info(text, role, json",
        "sidecar/test_logged_names",
    ),
    of(
        "service",
        "the log has raw reasons of losses",
        "                why = json.dumps(turn.why)  # it contains",
        "                why = turn.why  # it contains",
        "sidecar/test_logged_names",
    ),
    of(
        "membership",
        "the log has raw names in troubles of a wait",
        "                why = json.dumps(str(error))",
        "                why = str(error)",
        "sidecar/test_logged_names",
    ),
    of(
        "membership",
        "the log has raw names in troubles of a join",
        "json.dumps(rink.group), json.dumps(self.trouble)",
        "json.dumps(rink.group), self.trouble",
        "sidecar/test_logged_names",
    ),
    of(
        "event_stream",
        "the log has raw names of consumers",
        "log.warning(text, json.dumps(consumer.name))",
        "log.warning(text, consumer.name)",
        "sidecar/test_logged_names",
    ),
    of(
        "membership",
        "each try to join is said",
        "            if now >= reported_at + RETRY_REPORT_INTERVAL_S:\n",
        "            if True:\n",
        "sidecar/test_membership_tries",
    ),
    of(
        "membership",
        "tries to join never slow down",
        "backoff(failures, rink.name)",
        "backoff(1, rink.name)",
        "sidecar/test_membership_tries",
    ),
    of(
        "http_api",
        "the roles of all consumers are not counted",
        "        if self._service.turns.role_count + len(hold.roles) > MAX_ALL_ROLES:\n",
        "        if len(hold.roles) > MAX_ALL_ROLES:\n",
        "sidecar/test_http_api_limits",
    ),
    of(
        "service",
        "the grant of the pod is a word",
        "Consumer(POD, secrets.token_urlsafe(24), is_pod=True)",
        "Consumer(POD, POD, is_pod=True)",
    ),
    of(
        "service",
        "an error within the timer is seen by nobody",
        "            self.member.fail(error)\n",
        "",
    ),
    of(
        "event_stream",
        "a stream that was aborted counts as closed by its consumer",
        '            is_ours = scope["state"]["was_aborted"]()\n',
        "            is_ours = False\n",
    ),
    of(
        "http_api",
        "a hold that is cancelled as it is granted lets its turn go",
        "            service.end_call(consumer, is_answered=False)\n            raise\n",
        "            service.release_all(consumer, 'its call was given up')\n            raise\n",
    ),
    of(
        "membership",
        "tokens may be lower after the member was away",
        "_member_internals.raise_tokens(rink, self._last_token)",
        "_member_internals.raise_tokens(rink, 0)",
        "sidecar/test_membership",
    ),
    of(
        "membership",
        "a leave gives roles up whose consumers have not answered",
        "leave(wait=True, now=self._now",
        "leave(wait=False, now=self._now",
        "sidecar/test_membership",
    ),
    of(
        "membership",
        "a role that no consumer has any more waits for a successor",
        "        if self.service.draining and handle.is_held and not",
        "        if False and not",
        "sidecar/test_membership",
    ),
    of(
        "membership",
        "the end of one consumer ends the roles of others where no member could take any",
        "            or not _member_internals.has_other_members(self.rink)\n",
        "",
        "sidecar/test_membership",
    ),
    of(
        "program",
        "a member that cannot be made is found at the first consumer",
        "        make()  # so that its errors",
        "        pass  # so that its errors",
        "sidecar/test_program",
    ),
    of(
        "public",
        "an event loop that is late is healthy",
        "self.lag_s = loop.time() - due",
        "self.lag_s = 0.0",
        "sidecar/test_program",
    ),
    of(
        "metrics",
        "every gauge is 0",
        'GaugeMetricFamily(f"rink_sidecar_{name}", what, value)',
        'GaugeMetricFamily(f"rink_sidecar_{name}", what, 0)',
        "sidecar/test_public",
    ),
]
