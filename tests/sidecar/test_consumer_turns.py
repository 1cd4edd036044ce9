"""Test turns of roles: their reports, and when a role is released."""

from turn_story import GRACE_MS, HOLD_MS, Story

from rink.sidecar import effects as do


def test_hold_wants_each_role_once_in_order(story):
    story.consumer("b", "a", "b")
    assert [effect.role for effect in story.effects(do.Want)] == ["b", "a"]
    assert story.turns.role_count == 2


def test_grant_tells_first_consumer_an_end_within_hold(story):
    first, second = story.consumer("a"), story.consumer("a", name="cron")
    turn = story.grant("a")
    assert turn.consumer is first
    assert turn.until_ms == story.now + HOLD_MS
    assert story.turns.before(second, "a") == "web"


def test_grant_end_never_passes_the_deadline(story):
    story.consumer("a")
    story.live(ahead_ms=4_000)
    assert story.grant("a").until_ms == story.now + 4_000


def test_grant_without_a_live_session_is_let_go_and_wanted_again(story):
    story.consumer("a")
    story.turns.session(0, 0)
    assert story.grant("a") is None
    assert story.has_let_go() == ["a"]
    assert story.turns.wanted == ["a"]


def test_grant_that_nobody_wants_any_more_is_let_go(story):
    consumer = story.consumer("a")
    assert story.release(consumer, "a")
    assert story.grant("a") is None
    assert story.has_let_go() == ["a"]
    assert story.turns.wanted == []


def test_open_stream_moves_its_ends_on_every_third_of_hold(story):
    story.consumer("a")
    turn = story.grant("a")
    begin = story.now
    story.sleep(60_000)
    assert turn.until_ms > story.now + HOLD_MS // 2
    renewed = story.effects(do.Renewed)
    assert len(renewed) == (story.now - begin) // (HOLD_MS // 3)


def test_closed_stream_costs_at_most_hold(story):
    consumer = story.consumer("a")
    turn = story.grant("a")
    story.sleep(4_000)
    told = turn.until_ms
    story.turns.close_stream(consumer, consumer.stream, True, story.now)
    assert story.has_let_go() == []
    story.sleep(told - story.now - 1)
    assert story.has_let_go() == []
    story.sleep(1)
    assert story.has_let_go() == ["a"]
    assert consumer.is_forgotten


def test_renewal_after_a_closed_stream_keeps_the_turn(story):
    consumer = story.consumer("a", alive_ms=5_000)
    turn = story.grant("a")
    story.turns.close_stream(consumer, consumer.stream, True, story.now)
    for _ in range(10):
        story.sleep(4_000)
        story.turns.renew(consumer, story.now)
    assert not turn.is_over


def test_close_that_releases_lets_go_at_once_if_the_consumer_closed(story):
    consumer = story.consumer("a", releases_on_close=True)
    story.grant("a")
    story.turns.close_stream(consumer, consumer.stream, True, story.now)
    assert story.has_let_go() == ["a"]


def test_close_of_ours_is_never_an_answer(story):
    consumer = story.consumer("a", releases_on_close=True)
    story.grant("a")
    story.turns.close_stream(consumer, consumer.stream, False, story.now)
    assert story.has_let_go() == []


def test_close_of_an_earlier_stream_changes_nothing(story):
    consumer = story.consumer("a", releases_on_close=True)
    turn, earlier = story.grant("a"), consumer.stream
    story.turns.open_stream(consumer, story.now)
    story.turns.close_stream(consumer, earlier, True, story.now)
    story.sleep(60_000)
    assert not turn.is_over


def test_consumer_that_does_not_renew_in_time_is_forgotten(story):
    consumer = story.consumer("a", alive_ms=5_000)
    story.grant("a")
    story.sleep(5_000 + HOLD_MS)
    assert story.has_let_go() == ["a"]
    assert consumer.is_forgotten


def test_consumer_that_waits_needs_no_renewal_while_its_stream_is_open(story):
    consumer = story.consumer("a", alive_ms=5_000)
    story.sleep(60_000)
    assert story.grant("a").consumer is consumer


def test_loss_is_let_go_at_the_answer_and_queued_again(story):
    consumer = story.consumer("a")
    turn = story.grant("a")
    story.lose(turn)
    assert story.release(consumer, "a", turn.token)
    assert story.has_let_go() == ["a"]
    assert story.turns.wanted == ["a"]
    assert story.grant("a").token > turn.token


def test_answer_without_the_token_ends_the_wait_too(story):
    consumer = story.consumer("a")
    story.lose(story.grant("a"))
    assert story.release(consumer, "a")
    assert story.turns.wanted == []


def test_answer_that_comes_again_ends_no_later_turn(story):
    consumer = story.consumer("a")
    first = story.grant("a")
    story.lose(first)
    story.release(consumer, "a", first.token)
    second = story.grant("a")
    assert story.release(consumer, "a", first.token)
    assert not second.is_over


def test_answer_with_a_token_to_come_is_refused(story):
    consumer = story.consumer("a")
    turn = story.grant("a")
    assert not story.release(consumer, "a", turn.token + 1)
    assert not turn.is_over


def test_release_of_a_role_that_was_never_held_is_refused(story):
    consumer = story.consumer("a")
    story.grant("a")
    assert not story.release(consumer, "b")


def test_given_back_role_goes_to_the_next_consumer_with_a_greater_token(story):
    first, second = story.consumer("a"), story.consumer("a", name="cron")
    turn = story.grant("a")
    story.release(first, "a", turn.token)
    assert story.release(first, "a", turn.token)
    assert story.grant("a").consumer is second
    assert "a" not in first.waiting


def test_lost_turn_that_is_not_answered_goes_on_until_grace(story):
    story.consumer("a")
    turn = story.grant("a")
    story.lose(turn)
    story.sleep(GRACE_MS - 1)
    assert story.has_let_go() == []
    story.sleep(1)
    assert story.has_let_go() == ["a"]


def test_end_is_moved_on_up_to_the_deadline_and_not_beyond(story):
    consumer = story.consumer("a")
    turn = story.grant("a")
    story.now += HOLD_MS // 2
    story.live(ahead_ms=HOLD_MS - 1)
    story.turns.renew(consumer, story.now)
    assert turn.until_ms == story.now + HOLD_MS - 1


def test_turn_is_held_up_to_the_last_millisecond_of_its_end(story):
    consumer = story.consumer("a", stream=False)
    turn = story.grant("a")
    story.turns.end_call(consumer, story.now)
    story.now = turn.until_ms - 1
    story.turns.step(story.now)
    assert story.has_let_go() == []
    story.now += 1
    story.turns.step(story.now)
    assert story.has_let_go() == ["a"]


def test_role_with_a_turn_is_not_waited_for_by_the_next_consumer(story):
    story.consumer("a")
    story.grant("a")
    story.effects()
    story.consumer("a", name="cron")
    assert story.effects(do.Want) == []
    assert story.turns.wanted == []


def test_grace_that_is_over_before_the_end_told_lets_nothing_go():
    story = Story(grace_ms=1_000)
    consumer = story.consumer("a")
    turn = story.grant("a")
    story.lose(turn)
    story.now += 1_000
    story.turns.renew(consumer, story.now)
    assert story.has_let_go() == []
    assert turn.until_ms == story.now - 1_000 + HOLD_MS
    story.sleep(HOLD_MS - 1_000)
    assert story.has_let_go() == ["a"]


def test_late_answer_after_grace_queues_again(story):
    consumer = story.consumer("a")
    turn = story.grant("a")
    story.lose(turn)
    story.sleep(GRACE_MS + 1)
    assert story.turns.wanted == []
    assert story.release(consumer, "a", turn.token)
    assert story.turns.wanted == ["a"]


def test_end_that_passes_without_a_loss_is_told_as_one(story):
    """The session may end just after the turn, so nobody reported the loss."""
    consumer = story.consumer("a")
    turn = story.grant("a")
    story.live(lease=2)
    story.sleep(HOLD_MS)
    assert [effect.turn for effect in story.effects(do.TurnLost)] == [turn]
    assert not consumer.is_forgotten
    assert story.release(consumer, "a", turn.token)
    assert story.turns.wanted == ["a"]


def test_turn_of_a_session_that_ended_is_moved_on_no_more(story):
    story.consumer("a")
    turn = story.grant("a")
    story.lose(turn)
    story.live(lease=2)
    told = turn.until_ms
    story.sleep(HOLD_MS - 1)
    assert turn.until_ms == told
    story.sleep(1)
    assert story.has_let_go() == ["a"]


def test_one_role_that_drains_does_not_keep_another(story):
    consumer = story.consumer("a", "b")
    drained, kept = story.grant("a"), story.grant("b")
    story.lose(drained)
    story.sleep(GRACE_MS + HOLD_MS)
    assert drained.is_over
    assert not kept.is_over
    assert not consumer.is_forgotten


def test_call_that_holds_is_told_at_its_next_renewal_until_its_end(story):
    consumer = story.consumer("a", stream=False)
    story.grant("a")
    story.turns.end_call(consumer, story.now)
    for _ in range(5):
        story.sleep(HOLD_MS - 500)
        story.turns.renew(consumer, story.now)
    assert not consumer.is_forgotten
    story.sleep(HOLD_MS)
    assert story.has_let_go() == ["a"]
    assert consumer.is_forgotten


def test_renewal_after_the_end_revives_nothing(story):
    consumer = story.consumer("a", stream=False)
    turn = story.grant("a")
    story.turns.end_call(consumer, story.now)
    story.now += HOLD_MS  # the event loop was late: no step since
    story.turns.renew(consumer, story.now)
    assert turn.is_over
    assert consumer.is_forgotten


def test_answer_that_comes_when_its_consumer_is_forgotten_queues_nobody(story):
    """A process that was stopped reads the answer after the end has passed."""
    consumer = story.consumer("a", alive_ms=2_000)
    turn = story.grant("a")
    story.now += HOLD_MS
    story.live()
    assert story.release(consumer, "a", turn.token)
    assert story.turns.consumers == {}
    assert story.turns.wanted == []
    assert story.has_let_go() == ["a"]


def test_waiter_whose_call_has_ended_is_passed_over(story):
    gone = story.consumer("a", stream=False)
    story.turns.end_call(gone, story.now, is_answered=False)
    second = story.consumer("a", name="cron")
    assert story.grant("a").consumer is second


def test_pod_is_alive_without_being_heard_of():
    story = Story(grace_ms=0)
    story.consumer("a", stream=False, is_pod=True)
    turn = story.grant("a")
    story.sleep(60_000)
    assert not turn.is_over
    story.lose(turn)
    story.sleep(HOLD_MS)
    assert turn.is_over


def test_pod_that_lost_a_role_waits_for_it_again():
    story = Story(grace_ms=0)
    pod = story.consumer("a", stream=False, is_pod=True)
    first = story.grant("a")
    story.lose(first)
    story.sleep(HOLD_MS)
    assert first.is_over
    assert story.turns.wanted == ["a"]
    second = story.grant("a")
    assert second.consumer is pod
    assert second.token > first.token


def test_last_word_ends_everything(story):
    consumer = story.consumer("a", "b")
    story.grant("a")
    story.turns.release_all(consumer, "its wait is over")
    assert story.has_let_go() == ["a"]
    assert story.turns.wanted == []
    assert list(story.turns.turns()) == []


def test_consumer_without_roles_is_forgotten_after_a_while(story):
    consumer = story.consumer("a", stream=False, alive_ms=86_400_000)
    turn = story.grant("a")
    story.turns.end_call(consumer, story.now)
    assert story.release(consumer, "a")
    assert story.release(consumer, "a", turn.token), "an answer that is repeated"
    story.sleep(HOLD_MS)
    assert consumer.is_forgotten


def test_forgotten_consumers_leave_nothing_behind(story):
    for number in range(1_000):
        consumer = story.consumer("a", name=str(number), stream=False, alive_ms=86_400_000)
        story.turns.end_call(consumer, story.now)
        story.turns.release_all(consumer, "its wait is over")
        story.sleep(10)
    assert len(story.turns._due) < 100
    assert story.turns._seats == {}


def test_losses_of_a_waiting_consumer_leave_nothing_behind(story):
    consumer = story.consumer("a", stream=False, alive_ms=86_400_000)
    story.turns.end_call(consumer, story.now)
    for _ in range(300):
        turn = story.grant("a")
        story.lose(turn)
        story.sleep(4_000)
        assert story.release(consumer, "a", turn.token)
    assert len(story.turns._due) < 100
