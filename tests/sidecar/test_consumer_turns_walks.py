"""Walk through random lives of consumers, and check each promise.

A check follows each step.
"""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from rink.sidecar import effects as do
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer

HOLD_MS, GRACE_MS = 10_000, 25_000
SHORT_GRACE_MS = 2_000  # it is over before an end that was told before the loss
ROLES = ("a", "b", "c")
AHEAD_MS = 15_000  # of the deadline after each keepalive


class Lives(RuleBasedStateMachine):
    """Walk a member and its consumers.

    `told` has the largest end of each turn that was ever set.
    """

    def __init__(self):
        super().__init__()
        self.turns = None
        self.now = 1_000_000
        self.lease, self.deadline = 1, 0
        self.token = 10
        self.wanted, self.held = set(), {}
        self.told, self.answered, self.last_token = {}, set(), {}
        self.heard_at = {}
        self.names = itertools.count()

    @initialize(grace=st.sampled_from([GRACE_MS, SHORT_GRACE_MS]))
    def begin(self, grace):
        self.turns = ConsumerTurns(HOLD_MS, grace)
        self.keep_alive()

    # ── the member ───────────────────────────────────────────────────────────────────────────

    @rule()
    def keep_alive(self):
        self.deadline = self.now + AHEAD_MS
        self.turns.session(self.lease, self.deadline)

    @rule(data=st.data())
    def grant(self, data):
        free = sorted(self.wanted - self.held.keys())
        if data.draw(st.sampled_from([True, True, False])):
            self.keep_alive()
        if not free or self.now >= self.deadline:
            return
        role = data.draw(st.sampled_from(free))
        self.token += 1
        self.wanted.discard(role)
        self.held[role] = self.token
        turn = self.turns.granted(role, self.token, self.now)
        queue = [one for one in self.turns.consumers.values() if role in one.waiting]
        is_awaited = any(one.is_present(self.now) for one in queue)
        assert turn or is_awaited or role not in self.turns.wanted, "it would spin"
        self.carry_out()

    @rule(data=st.data())
    def lose(self, data):
        turns = sorted(self.turns.turns(), key=lambda turn: turn.role)
        if turns:
            self.turns.lost(data.draw(st.sampled_from(turns)), "version 7", self.now)
            self.carry_out()

    @rule()
    def lose_session(self):
        for turn in list(self.turns.turns()):
            self.turns.lost(turn, "the session is lost", self.now)
        self.lease += 1
        self.deadline = 0
        self.turns.session(0, 0)
        self.carry_out()

    @rule(ms=st.sampled_from([1, 300, 3_400, 9_999, 10_001, 30_000]))
    def pass_time(self, ms):
        end = self.now + ms
        while True:
            at = self.turns.step(self.now)
            self.carry_out()
            assert at is None or at > self.now, "it would spin"
            if at is None or at > end:
                break
            self.now = at
        self.now = end
        self.turns.step(self.now)
        self.carry_out()

    # ── the consumers ────────────────────────────────────────────────────────────────────────

    @rule(
        roles=st.lists(st.sampled_from(ROLES), min_size=1, max_size=3),
        alive=st.sampled_from([None, 4_000, 60_000]),
        on_close=st.booleans(),
        stream=st.booleans(),
    )
    def hold(self, roles, alive, on_close, stream):
        consumer = Consumer("web", f"grant-{next(self.names)}", alive, on_close)
        consumer.calls = 0 if stream else 1
        self.heard_at[consumer] = self.now
        self.turns.hold(consumer, roles, self.now)
        if stream:
            self.turns.open_stream(consumer, self.now)
        self.carry_out()

    def any_consumer(self, data):
        """Return a consumer, which may be heard before its timer.

        A process that was stopped reads its inputs in any order.
        """
        self.now += data.draw(st.sampled_from([0, 0, 0, 10_001]))
        consumers = list(self.turns.consumers.values())
        return data.draw(st.sampled_from(consumers)) if consumers else None

    @rule(data=st.data())
    def renew(self, data):
        if consumer := self.any_consumer(data):
            self.heard_at[consumer] = self.now
            self.turns.renew(consumer, self.now)
            self.carry_out()

    @rule(data=st.data())
    def open_stream(self, data):
        consumer = self.any_consumer(data)
        if consumer and not consumer.calls:
            self.heard_at[consumer] = self.now
            self.turns.open_stream(consumer, self.now)
            self.carry_out()

    @rule(data=st.data(), names_token=st.booleans(), offset=st.sampled_from([0, 0, 0, -1, 1]))
    def release(self, data, names_token, offset):
        if not (consumer := self.any_consumer(data)):
            return
        role = data.draw(st.sampled_from([*consumer.turns, *ROLES]))
        turn = consumer.turns.get(role)
        token = (turn.token if turn else consumer.over.get(role, 5)) + offset
        is_answer = turn is not None and (not names_token or token == turn.token)
        if is_answer and self.now < turn.until_ms:
            self.answered.add(turn)
        is_taken = self.turns.release(consumer, role, token if names_token else None, self.now)
        assert is_taken or not is_answer
        if is_taken and not consumer.turns:
            self.heard_at[consumer] = self.now
        self.carry_out()

    @rule(data=st.data(), by_consumer=st.booleans(), is_old=st.booleans())
    def close_stream(self, data, by_consumer, is_old):
        consumer = self.any_consumer(data)
        if consumer is None or consumer.stream is None:
            return
        if by_consumer and not is_old and consumer.releases_on_close:
            self.answered.update(consumer.turns.values())
        stream = consumer.stream - 1 if is_old else consumer.stream
        self.turns.close_stream(consumer, stream, by_consumer, self.now)
        self.carry_out()

    @rule(data=st.data(), is_answered=st.booleans())
    def end_call(self, data, is_answered):
        consumer = self.any_consumer(data)
        if consumer and consumer.calls:
            if is_answered:
                self.heard_at[consumer] = self.now
            self.turns.end_call(consumer, self.now, is_answered)
            self.carry_out()

    # ── what is so ───────────────────────────────────────────────────────────────────────────

    def carry_out(self):
        for effect in self.turns.take_effects():
            match effect:
                case do.Want(role):
                    self.wanted.add(role)
                case do.Unwant(role):
                    self.wanted.discard(role)
                case do.Granted(turn):
                    assert turn.token > self.last_token.get(turn.role, 0)
                    self.last_token[turn.role] = turn.token
                    consumer = turn.consumer
                    if len(consumer.turns) == 1 and consumer.is_open:
                        self.heard_at[consumer] = self.now
                case do.Over(turn):
                    told = self.told.get(turn, 0)
                    assert turn in self.answered or self.now >= max(told, turn.until_ms)
                case do.LetGo(role):
                    del self.held[role]
        for turn in self.turns.turns():
            assert turn.until_ms >= self.told.get(turn, 0), "an end went back"
            is_moved = turn.until_ms > self.told.get(turn, 0)
            assert not is_moved or turn.until_ms <= min(self.deadline, self.now + HOLD_MS)
            assert not is_moved or turn.lease == self.lease
            alive_ms = turn.consumer.alive_ms
            if is_moved and turn in self.told and alive_ms is not None:
                assert self.now < self.heard_at[turn.consumer] + alive_ms, "it did not renew"
            grace, lost_at = self.turns.grace_ms, turn.lost_at_ms
            assert not is_moved or lost_at is None or turn.until_ms <= lost_at + grace
            self.told[turn] = turn.until_ms

    @invariant()
    def each_role_has_one_turn(self):
        if self.turns is None:
            return
        roles = [turn.role for turn in self.turns.turns()]
        assert sorted(roles) == sorted(self.held)
        assert self.wanted == set(self.turns.wanted)
        for seat in self.turns._seats.values():
            assert not any(consumer.is_forgotten for consumer in seat.queue.values())
        for consumer in self.turns.consumers.values():
            for role in consumer.waiting:
                is_stuck = not self.turns.turn(role) and role not in self.wanted
                assert not (is_stuck and consumer.is_present(self.now)), f"{role} is stuck"

    def teardown(self):
        """Check that every turn ends once no consumer gives a sign of life.

        Lost turns end within the grace.
        """
        if self.turns is None:
            return
        for consumer in list(self.turns.consumers.values()):
            if consumer.calls:
                self.heard_at[consumer] = self.now
                self.turns.end_call(consumer, self.now)
            if consumer.stream is not None:
                self.turns.close_stream(consumer, consumer.stream, False, self.now)
        self.carry_out()
        for _ in range(40):
            self.keep_alive()
            self.pass_time(3_000)
        assert not self.turns.consumers
        assert not self.held
        assert not self.wanted


def test_turns_on_random_walks_keep_each_promise():
    steps = settings(max_examples=300, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Lives, settings=steps)
