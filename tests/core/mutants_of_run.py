"""Break `rink run`: when and what is killed, and who may run a slot."""

from __future__ import annotations

from mutant import Mutant

ENDS = "run/test_run_ends"
STAGES = "run/test_run_signal_stages"
SLOTS = "run/test_run_slots"
SURROUNDINGS = "run/test_run_command_env"
KILLS = "../integration/run/test_run_kills"
SIGNALS = "../integration/run/test_run_signals"
TERMINAL = "../integration/run/test_run_terminal"
CRON = "../integration/run/test_run_cron"
STDERR = "../integration/run/test_run_stderr"
OUTCOMES = "run/test_run_outcomes"
WATCH = "run/test_run_watch"
ONE_ROLE = "../integration/run/test_run_one_role"


def python(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in a module of `rink/run`."""
    return Mutant(what, f"rink/run/{module}.py", old, new, tests)


RUN = [
    python(
        "a command lives on until the very end told",
        "command_guard",
        "        end = self.until - self._lead\n",
        "        end = self.until\n",
        ENDS,
    ),
    python(
        "a frozen guard believes an end that came too late",
        "command_guard",
        "        if not self._is_closed and not self._is_killed and now < self.kill_at:\n",
        "        if not self._is_closed and not self._is_killed:\n",
        ENDS,
    ),
    python(
        "an end is believed after `rink run` has gone",
        "command_guard",
        "        if not self._is_closed and not self._is_killed and now < self.kill_at:\n",
        "        if not self._is_killed and now < self.kill_at:\n",
        ENDS,
    ),
    python(
        "a stop gives the grace beyond the end told",
        "command_guard",
        "        return min(end, self._stopped_at + self._grace)\n",
        "        return self._stopped_at + self._grace\n",
        ENDS,
    ),
    python(
        "SIGTERM comes with SIGKILL when the end is near",
        "command_guard",
        "        return self.kill_at if self.is_stopping else self.kill_at - self._notice\n",
        "        return self.kill_at\n",
        ENDS,
    ),
    python(
        "a guard whose pipe is closed goes on",
        "command_guard",
        "            if self._ends.close(now):\n",
        "            if False:\n",
        KILLS,
    ),
    python(
        "a guard without a new end does not kill",
        "command_guard",
        "        if due == KILL:\n            self._kill(now)\n",
        "        if due == KILL and self._text:\n            self._kill(now)\n",
        KILLS,
    ),
    python(
        "a guard kills the group alone",
        "command_guard",
        "        refused = signal_all(left, signal.SIGKILL)\n        if self._sweeps is None:\n",
        "        refused = []\n        if self._sweeps is None:\n",
        KILLS,
    ),
    python(
        "a guard is no subreaper",
        "command_guard",
        "        become_subreaper()\n        wake,",
        "        wake,",
        KILLS,
    ),
    python(
        "a guard says that it is over when its command's process has ended",
        "command_guard",
        "        if self._status is not None and not self._is_reported:\n",
        "        if self._status is not None:\n            return False\n"
        "        if self._status is not None and not self._is_reported:\n",
        KILLS,
    ),
    python(
        "what a command leaves behind gets no SIGTERM and no end",
        "command_guard",
        "            self._ends.stop(now)\n            self._terminate(signal.SIGTERM)\n",
        "",
        KILLS,
    ),
    python(
        "a guard hears SIGTERM and HUP as its command does",
        "command_guard",
        "        for number in IGNORED:\n            signal.signal(number, signal.SIG_IGN)\n",
        "",
        TERMINAL,
    ),
    python(
        "a command without a terminal is not in the foreground with one",
        "command_guard",
        "            self._terminal.give(os.getpid())\n        else:",
        "            pass\n        else:",
        TERMINAL,
    ),
    python(
        "`rink run` does not kill what a dead guard left",
        "guard_link",
        "        await self._reaper.kill_all()\n",
        "",
        KILLS,
    ),
    python(
        "`rink run` does not kill beside a guard that hangs",
        "command_run",
        "            if left_ms <= 0:\n",
        "            if False:\n",
        WATCH,
    ),
    python(
        "`rink run` looks once a second whether its guard has killed",
        "command_run",
        "                timeout=min(interval, left_ms / 1000),\n",
        "                timeout=interval,\n",
        WATCH,
    ),
    python(
        "a guard logs for as long as it takes",
        "command_guard",
        "                signal.setitimer(signal.ITIMER_REAL, WRITE_TIMEOUT_S, WRITE_TIMEOUT_S)\n",
        "",
        STDERR,
    ),
    python(
        "`rink run` logs on its event loop",
        "log_thread",
        "            self._lines.put_nowait(record)\n",
        "            logging.StreamHandler().handle(record)\n",
        STDERR,
    ),
    python(
        "an end is told to whoever has the pipe's number now",
        "guard_link",
        "        self._from = self._to = -1\n",
        "",
        WATCH,
    ),
    python(
        "a kill that does not end reads `/proc` all the time",
        "command_guard",
        "        self.pause_ms = SLOW_SWEEP_INTERVAL_MS if is_stuck else SWEEP_INTERVAL_MS\n",
        "",
        WATCH,
    ),
    python(
        "a signal in the leave takes the command's code",
        "supervisor",
        "        if deed is Deed.END and self._outcome is None:\n",
        "        if deed is Deed.END:\n",
        SIGNALS,
    ),
    python(
        "a signal ends the write of `done`",
        "supervisor",
        "        self._outcome = outcome\n        if self._slot and slot",
        "        if self._slot and slot",
        CRON,
    ),
    python(
        "a `rink run` that fails stays in the group",
        "supervisor",
        "            return await self._end(self._outcome or ExitStatus(FAILED))\n",
        "            return ExitStatus(FAILED)\n",
        OUTCOMES,
    ),
    python(
        "a slot that was begun and not started is left alone",
        "slot_duty",
        "(self._retry or slot.run == self._run)",
        "self._retry",
        OUTCOMES,
    ),
    python(
        "a slot that was started may be begun again under its run",
        "slot_duty",
        "        self._run = new_run()\n\n    async def finish",
        "\n    async def finish",
        OUTCOMES,
    ),
    python(
        "an end is not moved on",
        "command_run",
        "            guarded.tell(until)\n",
        "",
        KILLS,
    ),
    python(
        "an end of another lease is told",
        "command_run",
        " and lease == self._lease:",
        ":",
        KILLS,
    ),
    python(
        "a wait for another role than the group runs never ends",
        "membership",
        "        if runs not in {None, role}:\n",
        "        if False:\n",
        ONE_ROLE,
    ),
    python(
        "a command that is started again has the same token",
        "supervisor",
        "                self._token = role.token\n",
        "",
        SIGNALS,
    ),
    python(
        "SIGTERM reaches the command before its role is lost",
        "supervisor",
        "        elif deed is Deed.LEAVE:\n",
        "        elif deed is Deed.LEAVE and not guarded.stop(number):\n",
        SIGNALS,
    ),
    python(
        "a signal while waiting leaves as long as it takes",
        "membership",
        "        await asyncio.wait({leave}, timeout=QUICK_LEAVE_TIMEOUT_S)\n",
        "        await asyncio.wait({leave})\n",
        SIGNALS,
    ),
    python(
        "process 1 asks after no orphan",
        "supervisor",
        "        loop.add_signal_handler(signal.SIGCHLD, reaper.reap)\n",
        "        loop.add_signal_handler(signal.SIGCHLD, lambda: None)\n",
        SIGNALS,
    ),
    python(
        "a password is passed on to the command",
        "command_env",
        "(PASSWORD|TOKEN_FILE|SECRET)",
        "(TOKEN_FILE|SECRET)",
        SURROUNDINGS,
    ),
    python(
        "RINK_FILE lies on a disk",
        "command_env",
        "                if is_in_memory(real) and os.access(real, os.W_OK | os.X_OK):\n",
        "                if True:\n",
        SURROUNDINGS,
    ),
    python(
        "HUP begins to leave",
        "signal_stages",
        "LEAVING = frozenset({signal.SIGTERM, signal.SIGINT})\n",
        "LEAVING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})\n",
        STAGES,
    ),
    python(
        "two signals at once count as two",
        "signal_stages",
        "        if is_same:\n            return Deed.NOTHING\n",
        "",
        STAGES,
    ),
    python(
        "a terminal may stop `rink run` that writes to it",
        "supervisor",
        "        signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n",
        "",
        TERMINAL,
    ),
    python(
        "a slot that was started is run again",
        "slots",
        "            if slot.code is not None or not retry_unfinished:\n",
        "            if slot.code is not None:\n",
        SLOTS,
    ),
    python(
        "a slot that is done is run again if asked for unfinished ones",
        "slots",
        "            if slot.code is not None or not retry_unfinished:\n",
        "            if not retry_unfinished:\n",
        SLOTS,
    ),
    python(
        "a member whose session has ended writes a slot",
        "slots",
        "                    Compare(self.record, TxnTarget.CREATE, self.session),\n"
        "                    Compare(key, TxnTarget.MOD, self.seen),\n",
        "                    Compare(key, TxnTarget.MOD, self.seen),\n",
        SLOTS,
    ),
    python(
        "a slot is written over whatever lies there",
        "slots",
        "                    Compare(key, TxnTarget.MOD, self.seen),\n",
        "",
        SLOTS,
    ),
    python(
        "a lost answer to `started` is taken for another run",
        "slots",
        "            if slot.run == self.mine.run:\n",
        "            if False:\n",
        SLOTS,
    ),
    python(
        "old slots are deleted by name",
        "slots",
        "key=lambda kv: kv.create_revision)",
        "key=lambda kv: kv.key)",
        SLOTS,
    ),
]
