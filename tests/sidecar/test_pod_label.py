"""Test the wanted labels, and the next request."""

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from rink.errors import ConfigError
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer
from rink.sidecar.pod_label import (
    EARLY_MS,
    NONE,
    TIMEOUT_MS,
    UNSURE_MS,
    GiveUp,
    LabelPlan,
    Rest,
    Send,
    check_label_name,
    labels_of,
    wanted_labels,
)

HOLD_MS = 9_000
NOW = 1_000_000
A, AB = frozenset("a"), frozenset("ab")


# ── names and labels ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("role", ["leader", "A", "bank-1", "a.b_c-d", "0" * 63])
def test_role_that_can_be_a_label_is_taken(role):
    check_label_name(role)


@pytest.mark.parametrize(
    "role", ["BTC/ETH", "../x", "", "-a", "a.", "a b", "ä", "a\n", "0" * 64, "x" * 512]
)
def test_role_that_cannot_be_a_label_is_refused_in_words(role):
    with pytest.raises(ConfigError, match="cannot be a label of Kubernetes: use at most 63"):
        check_label_name(role)


def test_labels_of_all_roles_are_stated_each_time():
    assert labels_of(A, AB) == {"etcd-rink/a": "held", "etcd-rink/b": None}


# ── what is wanted ───────────────────────────────────────────────────────────────────────────


class Held:
    """Hold the role `a` for a consumer with a stream."""

    def __init__(self, hold_ms=HOLD_MS, deadline_ms=NOW + 60_000):
        self.turns = ConsumerTurns(hold_ms, 30_000)
        self.turns.session(1, deadline_ms)
        self.consumer = Consumer("web", "secret", calls=1)
        self.turns.hold(self.consumer, ["a"], NOW)
        self.turns.open_stream(self.consumer, NOW)
        self.turn = self.turns.granted("a", 7, NOW)

    def wanted(self, now, labelled=A):
        return wanted_labels(self.turns, labelled, now)


def test_label_is_wanted_while_the_role_is_held():
    held = Held()
    assert held.wanted(NOW) == (A, NOW + HOLD_MS - EARLY_MS)
    held.turns.release(held.consumer, "a", 7, NOW + 1)
    assert held.wanted(NOW + 1) == (NONE, math.inf)


def test_label_of_another_role_is_not_wanted():
    assert Held().wanted(NOW, labelled=frozenset("b")) == (NONE, math.inf)


def test_label_goes_at_the_loss_and_not_with_the_answer():
    held = Held()
    held.turns.lost(held.turn, "shop-b takes over", NOW + 1)
    assert held.wanted(NOW + 1)[0] == NONE
    assert not held.turn.is_over


def test_label_goes_before_an_end_that_is_not_moved_on():
    held = Held()
    last = NOW + HOLD_MS - EARLY_MS
    assert held.wanted(last - 1)[0] == A
    assert held.wanted(last)[0] == NONE


@pytest.mark.parametrize("hold_ms", [1_000, 3_000, 9_000])
def test_label_stays_while_the_end_is_moved_on(hold_ms):
    held = Held(hold_ms)
    for now in range(NOW, NOW + 3 * hold_ms, 10):
        held.turns.step(now)
        assert held.wanted(now)[0] == A


def test_label_goes_before_the_deadline_of_a_session_that_is_not_renewed():
    held = Held(deadline_ms=NOW + 15_000)
    for now in range(NOW, NOW + 15_000, 10):
        held.turns.step(now)
        assert held.wanted(now)[0] == (A if now < NOW + 15_000 - EARLY_MS else NONE)


# ── which request is sent ────────────────────────────────────────────────────────────────────


def started(known=NONE):
    """Return a plan that knows the labels."""
    plan = LabelPlan()
    assert plan.step(known, NOW) == Send(known), "a former life may have left its label"
    plan.sent(known, NOW)
    plan.answered()
    assert plan.step(known, NOW) == Rest(math.inf)
    return plan


def test_plan_begins_with_all_labels_taken_off():
    started(NONE)


def test_one_request_is_under_way_at_a_time():
    plan = started()
    assert plan.step(A, NOW) == Send(A)
    plan.sent(A, NOW)
    assert plan.step(A, NOW + 1) == Rest(NOW + TIMEOUT_MS)
    assert plan.step(AB, NOW + 1) == Rest(NOW + TIMEOUT_MS), "more can wait for the answer"


def test_label_that_is_put_on_too_late_is_given_up_and_taken_off():
    plan = started()
    plan.step(A, NOW)
    plan.sent(A, NOW)
    assert not plan.is_off("a")
    assert plan.step(NONE, NOW + 5) == GiveUp()
    assert not plan.given_up(NOW + 5)
    assert not plan.is_off("a"), "it may still come"
    assert plan.step(NONE, NOW + 5) == Send(NONE)
    plan.sent(NONE, NOW + 5)
    plan.answered()
    assert plan.is_off("a")
    assert plan.step(NONE, NOW + 6) == Rest(NOW + 5 + UNSURE_MS)
    assert plan.step(NONE, NOW + 5 + UNSURE_MS) == Send(NONE), "the late one may have come"
    plan.sent(NONE, NOW + 5 + UNSURE_MS)
    plan.answered()
    assert plan.step(NONE, NOW + 6 + UNSURE_MS) == Rest(math.inf)


def test_request_without_an_answer_is_given_up_in_time():
    plan = started()
    plan.step(A, NOW)
    plan.sent(A, NOW)
    assert plan.step(A, NOW + TIMEOUT_MS) == GiveUp()
    assert plan.given_up(NOW + TIMEOUT_MS)
    assert plan.known is None


def pauses_of(plan, number=20):
    """Return the pauses in milliseconds after failures in a row."""
    now, pauses = NOW, []
    for _ in range(number):
        assert plan.step(A, now) == Send(A)
        plan.sent(A, now)
        plan.failed(now, may_take_effect=False)
        rest = plan.step(A, now)
        pauses.append(rest.until_ms - now)
        now = rest.until_ms
    return pauses


def test_failures_are_tried_again_with_growing_pauses():
    pauses = pauses_of(started())
    assert pauses[0] <= 50
    assert pauses[:10] == sorted(pauses[:10])
    assert 30_000 <= max(pauses) <= 60_000


def test_pods_do_not_retry_in_step():
    first, second = pauses_of(LabelPlan("web-1")), pauses_of(LabelPlan("web-2"))
    assert sum(abs(one - other) for one, other in zip(first, second, strict=True)) > 20_000


def test_take_off_is_tried_at_once_after_failures_to_put_on():
    plan = started(A)
    plan.step(AB, NOW)
    plan.sent(AB, NOW)
    plan.failed(NOW, may_take_effect=False)
    assert isinstance(plan.step(AB, NOW), Rest)
    assert plan.step(NONE, NOW) == Send(NONE)


def test_failure_that_had_no_effect_leaves_the_labels_known():
    plan = started()
    plan.step(A, NOW)
    plan.sent(A, NOW)
    plan.failed(NOW, may_take_effect=False)
    assert plan.is_off("a"), "a release need not wait"


def test_refusal_is_kept_until_another_answer():
    plan = started()
    plan.step(A, NOW)
    plan.sent(A, NOW)
    plan.failed(NOW, may_take_effect=False, is_refused=True)
    assert plan.refused == A
    plan.step(NONE, NOW)
    assert plan.refused != NONE, "taking off was not refused"


# ── any order of faults ──────────────────────────────────────────────────────────────────────


class Faults(RuleBasedStateMachine):
    """Answer or refuse a request, or execute it late or never."""

    def __init__(self):
        super().__init__()
        self.now = NOW
        self.plan = LabelPlan()
        self.wanted = NONE
        self.labels = AB  # of a former life
        self.late = []  # unanswered requests: labels, and until when they may take effect

    def abandon(self, roles):
        self.late.append((roles, self.now + UNSURE_MS))

    def step(self):
        while True:
            match self.plan.step(self.wanted, self.now):
                case Send(roles):
                    self.plan.sent(roles, self.now)
                case GiveUp():
                    self.abandon(self.plan.in_flight)
                    self.plan.given_up(self.now)
                case Rest(until_ms):
                    assert until_ms > self.now
                    return until_ms

    @rule(wanted=st.sampled_from([NONE, A, AB, frozenset("b")]))
    def want(self, wanted):
        self.wanted = wanted
        self.step()

    @rule(ms=st.sampled_from([1, 100, TIMEOUT_MS - 1, TIMEOUT_MS, UNSURE_MS, 60_000]))
    def pass_time(self, ms):
        self.now += ms
        self.late = [one for one in self.late if one[1] > self.now]
        self.step()

    @rule()
    def answer(self):
        if self.plan.in_flight is not None:
            self.labels = self.plan.in_flight
            self.plan.answered()
            self.step()

    @rule(is_sent=st.booleans())
    def fail(self, is_sent):
        if self.plan.in_flight is not None:
            if is_sent:
                self.abandon(self.plan.in_flight)
            self.plan.failed(self.now, may_take_effect=is_sent)
            self.step()

    @rule(number=st.integers(0, 3))
    def come_late(self, number):
        if number < len(self.late):
            self.labels = self.late.pop(number)[0]

    @invariant()
    def known_labels_are_true_unless_one_may_come_late(self):
        if self.plan.known is not None and not self.plan._is_unsure:
            assert self.labels == self.plan.known
            assert self.late == []

    def teardown(self):
        """Check that all is well in the end, after any late request."""
        for _ in range(20):
            if self.plan.in_flight is not None:
                self.answer()
            while self.late:
                self.come_late(0)
            until_ms = self.step()
            if until_ms == math.inf:
                break
            self.pass_time(int(until_ms) - self.now)
        assert self.labels == self.wanted
        assert self.plan.known == self.wanted


def test_labels_are_right_in_the_end_after_any_faults():
    run_state_machine_as_test(Faults, settings=settings(max_examples=150, stateful_step_count=40))
