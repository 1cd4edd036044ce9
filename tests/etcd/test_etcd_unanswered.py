"""Check that the k-th answer belongs to the k-th request."""

from hypothesis import given
from hypothesis import strategies as st

from rink.etcd.keepalive import NO_LEASE, Sent, Unanswered


def asked(lease, at, epoch=0):
    return Sent(lease, sent_at=at, handed_at=at, epoch=epoch)


def times(requests):
    return [(request.lease, request.sent_at) for request in requests]


def test_answers_are_matched_in_order():
    requests = Unanswered()
    for lease, sent_at in ((1, 10.0), (2, 11.0), (1, 12.0)):
        requests.send(asked(lease, sent_at))
    assert [requests.answered(lease).sent_at for lease in (1, 2, 1)] == [10.0, 11.0, 12.0]
    assert requests.oldest_at is None


def test_answer_out_of_order_matches_nothing():
    requests = Unanswered()
    requests.send(asked(1, 10.0))
    assert requests.answered(2) is None
    assert requests.answered(1) is not None
    assert requests.answered(1) is None


def test_what_waits_is_one_request_per_lease_the_latest():
    requests = Unanswered()
    for at in range(1000):
        requests.wait(asked(1, float(at)))
    requests.wait(asked(2, 5.0))
    assert times(requests.take_waiting(0)) == [(1, 999.0), (2, 5.0)]
    assert requests.take_waiting(0) == []


def test_what_is_forgotten_is_not_sent_again():
    requests = Unanswered()
    requests.wait(asked(1, 9.0))
    for lease in (1, 2, 1):
        requests.send(asked(lease, 10.0))
    requests.forget(1)
    assert requests.answered(1) is not None  # what is on the stream keeps its place
    requests.drop_sent()
    assert times(requests.take_waiting(0)) == [(2, 10.0)]


def test_broken_stream_leaves_its_requests_waiting_with_their_own_time():
    requests = Unanswered()
    requests.send(asked(1, 10.0))
    requests.send(asked(1, 11.0))
    requests.send(asked(2, 12.0))
    requests.drop_sent()
    assert requests.oldest_at is None
    assert times(requests.take_waiting(0)) == [(1, 11.0), (2, 12.0)]


def test_question_for_a_sign_of_life_is_not_asked_again():
    requests = Unanswered()
    requests.send(asked(NO_LEASE, 10.0))
    requests.send(asked(1, 11.0))
    requests.drop_sent()
    assert times(requests.take_waiting(0)) == [(1, 11.0)]


def test_what_was_asked_of_another_cluster_is_forgotten():
    requests = Unanswered()
    requests.wait(asked(1, 1.0, epoch=0))
    requests.wait(asked(2, 2.0, epoch=1))
    assert times(requests.take_waiting(1)) == [(2, 2.0)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.just(0)),
        st.tuples(st.just("break"), st.just(0)),
        st.tuples(st.just("open"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_time_is_later_than_the_sending_it_stands_for(steps):
    """A server answers in order, over streams that break."""
    requests, now, is_open = Unanswered(), 0.0, False
    on_the_wire = []

    def send(request):
        requests.send(request)
        on_the_wire.append((request.lease, now))

    for what, lease in steps:
        now += 1.0
        if what == "ask":
            (send if is_open else requests.wait)(asked(lease, now))
        elif what == "open" and not is_open:
            is_open = True
            for waiting in requests.take_waiting(0):
                send(waiting)
        elif what == "break" and is_open:
            is_open = False
            on_the_wire.clear()
            requests.drop_sent()
        elif what == "answer" and on_the_wire:
            answered, really_sent_at = on_the_wire.pop(0)
            sent = requests.answered(answered)
            assert sent.lease == answered
            assert sent.sent_at <= really_sent_at
