"""Break the engine: its threads, its clock, and the order of requests."""

from __future__ import annotations

from mutant import Mutant, core, engine

LEASES = [
    engine(
        "the read that renewals wait for waits behind requests that hang",
        "requests",
        "self._read_threads if is_read else self._request_threads",
        "self._request_threads",
        "engine/test_engine_requests",
    ),
    engine(
        "a lease is renewed although its engine does not answer",
        "lease_renewal",
        "return self.owner.ticks_answered >= self.ticks_asked",
        "return True",
        "engine/test_engine_lease_renewal",
    ),
    engine(
        "a tick is answered by whoever asks, not by the engine",
        "engine",
        "        self._mailbox.put(_Tick())\n",
        "        self.ticks_answered += 1\n",
        "faces/test_blocking_only",
    ),
    engine(
        "the deadline is watched by the engine alone",
        "lease_renewal",
        "            renewal.owner.expire()\n",
        "            pass\n",
        "engine/test_engine_lease_renewal",
    ),
    engine(
        "a lease is renewed once per TTL",
        "lease_renewal",
        "RENEWALS_PER_TTL = 6",
        "RENEWALS_PER_TTL = 1",
        "engine/test_engine_lease_renewal",
        "engine/test_engine_faults",
    ),
    engine(
        "that etcd has ended a lease is not told",
        "lease_renewal",
        "            renewal.owner.ended(answer.lease)\n",
        "            pass\n",
        "engine/test_engine_lease_renewal",
    ),
    engine(
        "one engine that fails ends the renewals of all",
        "lease_renewal",
        "except Exception:  # the session",
        "except ArithmeticError:  # the session",
        "engine/test_engine_lease_renewal",
    ),
    engine(
        "a dropped lease goes on being renewed",
        "lease_renewal",
        "            self._leases.pop(lease, None)\n",
        "            pass\n",
        "engine/test_engine_lease_renewal",
    ),
    engine(
        "an engine that failed keeps its lease",
        "engine",
        "            self._lease_renewal.drop(self.node.member_lease.id)\n",
        "",
        "faces/test_blocking_only",
    ),
    engine(
        "an engine that failed keeps its roles",
        "engine",
        "            for hold in list(self.table.held.values()):\n"
        "                self.table.lose(hold, self.clock.now(), because)\n",
        "",
        "faces/test_face_membership",
    ),
    engine(
        "the first deadline counts from the answer",
        "requests",
        "ev.LeaseGranted(granted.lease, granted.ttl, sent_at,",
        "ev.LeaseGranted(granted.lease, granted.ttl, self._clock.now(),",
        "engine/test_engine_requests",
    ),
    engine(
        "a lease whose grant was not answered is left behind",
        "requests",
        "            self._request_threads.submit(lambda: self._forget(lease))\n",
        "",
        "engine/test_engine_requests",
        "engine/test_engine_faults",
    ),
    engine(
        "time stands still while the machine is suspended",
        "clock",
        'getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)',
        "time.CLOCK_MONOTONIC",
        "engine/test_engine_parts",
    ),
    engine(
        "time is what the wall clock shows",
        "clock",
        'partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))',
        "time.time",
        "engine/test_engine_parts",
    ),
]

REQUESTS = [
    engine(
        "a late write compares nothing",
        "requests",
        "            (Compare(key, TxnTarget.MOD, effect.compare),),\n",
        "            (),\n",
        "engine/test_engine_faults",
    ),
    engine(
        "a write without an answer counts as applied",
        "requests",
        "return ev.WriteFailed(attempt, error)",
        "return ev.WriteAnswered(attempt, True, 1)",
        "engine/test_engine_requests",
        "engine/test_engine_faults",
    ),
    engine(
        "a request without an answer is made again behind the core's back",
        "requests",
        "        except RinkError as error:\n            event = _failed(effect, error)\n",
        "        except RinkError:\n            event = self._ask(effect)\n",
        "engine/test_engine_requests",
    ),
    engine(
        "the record that a refused write found is not read",
        "requests",
        "record = self._member(result.results[0])",
        "record = None",
        "engine/test_engine_requests",
    ),
    engine(
        "a version is proclaimed by whoever has coordinated",
        "requests",
        "            Compare(self._own, TxnTarget.CREATE, effect.create_revision),\n",
        "",
        "engine/test_engine_requests",
    ),
    engine(
        "a version is proclaimed over another of its number",
        "requests",
        "            Compare(key, TxnTarget.CREATE, 0),\n",
        "",
        "engine/test_engine_requests",
    ),
    engine(
        "a version is proclaimed without the one that it was planned from",
        "requests",
        "            guards.append(Compare(before, TxnTarget.MOD, effect.after))\n",
        "            pass\n",
        "engine/test_engine_requests",
    ),
    engine(
        "a dead record is removed without a compare",
        "requests",
        "self._etcd.txn((Compare(key, TxnTarget.MOD, mod_revision),), (Delete(key),))",
        "self._etcd.txn((), (Delete(key),))",
        "engine/test_engine_requests",
    ),
    engine(
        "another history is a request that failed, and no more",
        "requests",
        "            self._post(ev.HistoryChanged(str(error)))\n",
        "",
        "engine/test_engine_requests",
    ),
]

VIEW = [
    engine(
        "a list is believed though another answer was of another cluster",
        "group_watch",
        "if self._etcd.epoch != self._epoch:",
        "if False:",
        "engine/test_engine_group_watch",
    ),
    engine(
        "the list is asked for before the watch is open",
        "group_watch",
        "        elif not watch.wait_open(self._etcd.timeout):\n",
        "        elif self._begin_list(number) or not watch.wait_open(self._etcd.timeout):\n",
        "engine/test_engine_group_watch",
    ),
    engine(
        "a list of an earlier call of the watch counts",
        "group_watch",
        "if number != self._round or attempt != self._lists:",
        "if number != self._round:",
        "engine/test_engine_group_watch",
    ),
    engine(
        "a list that fails when it counts no more is heard",
        "group_watch",
        "            if attempt == self._lists:\n",
        "            if True:\n",
        "engine/test_engine_group_watch",
    ),
    engine(
        "changes of a new history are told before its list",
        "group_watch",
        "            self._is_list_posted, self._early = False, []\n            if self._watch",
        "            if self._watch",
        "engine/test_engine_group_watch",
    ),
    engine(
        "what an earlier watch still delivers is heard",
        "group_watch",
        "            if number != self._round:\n                return\n"
        "            if self._is_list_posted:",
        "            if self._is_list_posted:",
        "engine/test_engine_group_watch",
    ),
    engine(
        "another history is a list that failed",
        "group_watch",
        "is_changed = isinstance(error, EtcdClusterChanged)\n",
        "is_changed = False\n",
        "engine/test_engine_group_watch",
    ),
    engine(
        "what broke the view is not mended",
        "engine",
        "                self._group_watch.restart_soon()\n",
        "                pass\n",
        "engine/test_engine_faults",
    ),
]

THREADS = [
    engine(
        "a finalizer changes the table itself",
        "engine",
        "        self._mailbox.put(handle)\n",
        "        with self.lock:\n            self.table.release(handle)\n        self.nudge()\n",
        "engine/test_engine_steps",
    ),
    engine(
        "an effect is carried out before the step is published",
        "stepper",
        "        effects = node.step_own(self._clock.now(), events, unplaced)\n",
        "        effects = node.step_own(self._clock.now(), events, unplaced)\n"
        "        after, table.gate = table.gate, gate\n"
        "        for effect in effects:\n"
        "            if isinstance(effect, do.Lose):\n"
        "                for handle in effect.hold.handles:\n"
        "                    handle.lost.set()\n"
        "        table.gate = after\n",
        "engine/test_engine_steps",
    ),
    engine(
        "user code hears of a loss under the lock",
        "engine",
        "        self._carry_out(step.effects)\n",
        "        with self.lock:\n            self._carry_out(step.effects)\n",
        "engine/test_engine_steps",
    ),
    engine(
        "whoever was granted a role waits for what is done for the group",
        "engine",
        "        if step.granted:\n            self.clock.give_way(GRANT_PAUSE_S)\n",
        "",
        "engine/test_engine_order",
    ),
    engine(
        "a member that has left is in the way of who gets its roles",
        "engine",
        "            self.clock.give_way(LEAVE_PAUSE_S)\n",
        "            pass\n",
        "engine/test_engine_order",
    ),
    engine(
        "a member that gave its lease back goes on to follow the group",
        "engine",
        "            self._group_watch.mute()",
        "            pass",
        "engine/test_engine_order",
    ),
    engine(
        "a member that gave its lease back looks after its group first",
        "engine",
        "        if self._gave_back(step.effects):\n",
        "        self._stepper.step_group(step.unplaced)\n"
        "        if self._gave_back(step.effects):\n",
        "engine/test_engine_order",
    ),
    engine(
        "a member that takes another lease gives others way first",
        "engine",
        "        return not self.node.living.wants_record and any(\n",
        "        return any(\n",
        "engine/test_engine_order",
    ),
    Mutant(
        "a thread wakes a loop that is awake, and waits for the interpreter each time",
        "rink/_asyncio.py",
        "        if self.is_awake:\n            return\n",
        "",
        ("faces/test_in_loop",),
    ),
    Mutant(
        "a loop that was interrupted is not woken again",
        "rink/_asyncio.py",
        "            self._loop.call_soon(self._carry)  # before",
        "            # before",
        ("faces/test_in_loop",),
    ),
    core(
        "who is woken by a grant sees the coordinator of the step before",
        "member",
        "        self._report_coordinator()\n        return self.out.take()\n",
        "        effects = self.out.take()\n        self._report_coordinator()\n"
        "        return effects\n",
        "member",
    ),
    engine(
        "threads that only wait are woken when holders must let go",
        "last_waits",
        "                self.end_at = self._clock.now() + END_DELAY_S\n",
        "                self.end_at = self._clock.now()\n",
        "engine/test_engine_endings",
    ),
    engine(
        "a wait inside the body of a role ends as late as the others",
        "last_waits",
        "for handle in waiting if handle.by in inside]\n",
        "for handle in waiting if False]\n",
        "engine/test_engine_endings",
    ),
    engine(
        "nobody ends the waits while etcd is away",
        "engine",
        "        wakes = (self.node.wake_at, self._group_watch.wake_at, self._last_waits.end_at)\n",
        "        wakes = (self.node.wake_at, self._group_watch.wake_at)\n",
        "engine/test_engine_endings",
    ),
    engine(
        "a line is logged for each of very many roles",
        "member_log",
        "        if len({note.hold.role for note in notes}) <= MAX_LINES:\n",
        "        if True:\n",
        "faces/test_face_log",
    ),
    engine(
        "a loop of get_role fills the log",
        "member_log",
        "return logging.INFO if hold.is_awaited else logging.DEBUG",
        "return logging.INFO",
        "faces/test_face_log",
    ),
    engine(
        "messages are stepped with one by one",
        "engine",
        "                self._turn(messages)",
        "                [self._turn([one]) for one in messages] or self._turn([])",
        "engine/test_engine_steps",
    ),
    engine(
        "an engine waits for its turn without a bound",
        "step_queue",
        "mine.acquire(timeout=TURN_TIMEOUT_S)",
        "mine.acquire()",
        "faces/test_interrupts",
    ),
    engine(
        "an engine waits for its turn once, though others' turns end",
        "step_queue",
        "if ended_turns == self._ended_turns:",
        "if True:",
        "engine/test_engine_step_queue",
    ),
    engine(
        "turns are handed to whoever came last",
        "step_queue",
        "self._queue.popleft()",
        "self._queue.pop()",
        "engine/test_engine_step_queue",
    ),
    engine(
        "a forked child waits for a step of its parent's",
        "engine",
        "    step_queue.reset()\n",
        "    pass\n",
        "faces/test_face_fork",
    ),
    engine(
        "whoever waits is not told that the group was left",
        "last_waits",
        "            handles = self._table.waits.clear()\n        for handle in handles:\n"
        "            handle.signal.set()\n",
        "            handles = self._table.waits.clear()\n",
        "engine/test_engine_steps",
    ),
    engine(
        "while very many roles drain the engine takes all there is of the interpreter",
        "engine",
        "                self._rest(self.clock.now() - began_at)\n",
        "",
        "engine/test_engine_steps",
    ),
    engine(
        "a step waits until every wait is placed",
        "stepper",
        "if placings >= MAX_PLACINGS and missing:",
        "if False:",
        "engine/test_engine_schemes",
    ),
    engine(
        "a request that gets no thread is made on the engine's",
        "request_threads",
        "if self._hand_over(call, 1):",
        "if False:",
        "engine/test_engine_parts",
    ),
    engine(
        "a lease renewal that failed to start is never started again",
        "lease_renewal",
        "                self._mailbox = None\n",
        "",
        "engine/test_engine_lease_renewal",
    ),
    engine(
        "a join that failed leaves a thread for callbacks behind",
        "engine",
        "            self.callbacks.close()\n            self.left.set()\n",
        "            self.left.set()\n",
        "faces/test_blocking_only",
    ),
    engine(
        "a callback that raises ends the worker",
        "callbacks",
        "except BaseException:  # sys.exit()",
        "except ArithmeticError:  # sys.exit()",
        "engine/test_engine_parts",
    ),
    engine(
        "a request that raises ends its thread",
        "request_threads",
        "        except Exception:\n",
        "        except LookupError:\n",
        "engine/test_engine_parts",
    ),
]

FACES = [
    Mutant(
        "whoever iterates late is told of a grant that is over",
        "rink/role_set.py",
        "        if self._undelivered.pop((role, True), self) is self:\n            return False\n",
        "        return False\n",
        ("faces/test_face_following",),
    ),
    Mutant(
        "a gap in the log is passed over",
        "rink/base_rink.py",
        "skipped=range(after + 1, number)",
        "skipped=range(0)",
        ("faces/test_face_membership",),
    ),
    Mutant(
        "any event loop is taken for that of asyncio",
        "rink/event_loops.py",
        "    library = loop_library()\n",
        '    library = "asyncio"\n',
        ("faces/test_other_loops",),
    ),
]

ENGINE = [*LEASES, *REQUESTS, *VIEW, *THREADS, *FACES]
