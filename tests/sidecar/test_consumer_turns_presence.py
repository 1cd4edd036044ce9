"""Test turns of consumers that may be gone, and repeated answers."""

import pytest
from turn_story import HOLD_MS

from rink.sidecar import effects as do

# ── consumers that are gone, or may be ───────────────────────────────────────────────────────


def grants_until_nobody_wants(story, role, most=10):
    """Grant a role while it is wanted, and return the number of grants."""
    count = 0
    while role in story.turns.wanted:
        assert count < most, "each grant makes the member write its record"
        count += 1
        story.grant(role)
    return count


def waiting_one(story, role="b", **how):
    """Return a consumer that holds a role and waits behind `two`."""
    two = story.consumer(role, name="two")
    story.grant(role)
    one = story.consumer("a", role, name="one", **how)
    story.grant("a")
    return one, two


def test_grant_to_nobody_present_is_not_wanted_again_and_again(story):
    one, two = waiting_one(story)
    story.turns.close_stream(one, one.stream, True, story.now)
    story.release(two, "b")
    assert grants_until_nobody_wants(story, "b") <= 1
    story.sleep(HOLD_MS)
    assert one.is_forgotten
    assert story.turns._seats == {}


def test_call_that_is_given_up_wants_no_role_again_and_again(story):
    one, two = waiting_one(story, stream=False)
    story.turns.end_call(one, story.now, is_answered=False)
    story.release(two, "b")
    assert grants_until_nobody_wants(story, "b") <= 1


def test_program_that_does_not_renew_wants_no_role_again_and_again(story):
    one, two = waiting_one(story, alive_ms=5_000)
    story.now += 5_000
    story.turns.step(story.now)
    story.live()
    story.release(two, "b")
    assert grants_until_nobody_wants(story, "b") <= 1
    assert not one.is_forgotten


@pytest.mark.parametrize("comes_back", ["renew", "open_stream"])
def test_consumer_that_comes_back_keeps_its_place(story, comes_back):
    one, two = waiting_one(story)
    story.turns.close_stream(one, one.stream, True, story.now)
    story.turns.release_all(two, "it has ended")
    grants_until_nobody_wants(story, "b")
    assert story.turns.wanted == []
    getattr(story.turns, comes_back)(one, story.now)
    assert story.turns.wanted == ["b"]
    later = story.consumer("b", name="later")
    assert story.grant("b").consumer is one
    assert story.turns.before(later, "b") == "one"


def forgotten_after_ms(story, consumer, roles):
    """Grant roles to a dead consumer, and return when it is forgotten."""
    died_at = story.now
    while not consumer.is_forgotten:
        story.sleep(HOLD_MS - 1_000)
        if roles and roles[0] in story.turns.wanted:
            story.grant(roles.pop(0))
    return story.now - died_at


@pytest.mark.parametrize("how", [{"stream": False}, {"stream": True}])
def test_grants_keep_no_dead_consumer_alive(story, how):
    roles = [f"r{number}" for number in range(20)]
    consumer = story.consumer("a", *roles, alive_ms=15_000, **how)
    story.grant("a")
    if not how["stream"]:
        story.turns.end_call(consumer, story.now)
    assert forgotten_after_ms(story, consumer, roles) <= 15_000 + 2 * HOLD_MS
    assert len(roles) >= 17


def test_grants_keep_no_dead_poller_without_alive(story):
    roles = [f"r{number}" for number in range(20)]
    consumer = story.consumer("a", *roles, stream=False)
    story.grant("a")
    story.turns.end_call(consumer, story.now)
    assert forgotten_after_ms(story, consumer, roles) <= 3 * HOLD_MS


def test_first_turn_of_a_poller_gives_no_time_without_a_renewal(story):
    consumer = story.consumer("a", "b", alive_ms=60_000, stream=False)
    turn = story.grant("a")
    story.turns.end_call(consumer, story.now)
    story.release(consumer, "a", turn.token)
    story.sleep(59_000)
    turn = story.grant("b")
    story.sleep(1_000)
    told = turn.until_ms
    story.sleep(told - story.now)
    assert turn.is_over
    assert consumer.is_forgotten


def test_first_turn_after_a_wait_counts_as_a_sign_of_life(story):
    """A consumer with an open stream need not renew while it holds nothing."""
    story.consumer("a", alive_ms=15_000)
    story.sleep(60_000)
    turn = story.grant("a")
    story.sleep(14_000)
    assert not turn.is_over


# ── answers that come again ──────────────────────────────────────────────────────────────────


def poller(story, **how):
    """Return a consumer without a stream, and its turn."""
    consumer = story.consumer("a", stream=False, **how)
    turn = story.grant("a")
    story.turns.end_call(consumer, story.now)
    return consumer, turn


def test_old_answer_that_comes_again_answers_no_newer_loss(story):
    consumer, first = poller(story, alive_ms=60_000)
    story.lose(first)
    story.release(consumer, "a", first.token)
    second = story.grant("a")
    story.turns.session(0, 0)
    story.now += HOLD_MS
    story.turns.step(story.now)
    assert second.is_over
    assert story.release(consumer, "a", first.token)
    assert consumer.unanswered == {"a": second}
    assert story.turns.wanted == []
    assert story.release(consumer, "a", second.token)
    assert consumer.unanswered == {}
    assert story.turns.wanted == ["a"]


def test_release_of_a_poller_may_come_again(story):
    consumer, turn = poller(story)
    story.sleep(HOLD_MS - 1_000)
    assert story.release(consumer, "a", turn.token)
    story.sleep(HOLD_MS - 1)
    assert not consumer.is_forgotten
    assert story.release(consumer, "a", turn.token)
    story.sleep(HOLD_MS)
    byes = [effect.why for effect in story.effects(do.Bye)]
    assert byes == ["it has no roles any more"]


def test_answer_of_a_poller_keeps_its_place(story):
    consumer, turn = poller(story)
    later = story.consumer("a", name="later")
    story.lose(turn)
    story.sleep(HOLD_MS - 1_000)
    story.turns.renew(consumer, story.now)
    assert story.release(consumer, "a", turn.token)
    story.turns.step(story.now)
    assert story.turns.wanted == ["a"]
    assert "a" in consumer.waiting
    story.turns.release_all(later, "it has ended")
    story.sleep(HOLD_MS - 1_000)
    story.turns.renew(consumer, story.now)
    assert story.grant("a").consumer is consumer
