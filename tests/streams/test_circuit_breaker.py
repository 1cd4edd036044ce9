"""Trip the breaker if too many events are given up."""

from rink.streams.consumer.circuit_breaker import CircuitBreaker


def ends(breaker, text):
    """Let events end, and return the room before the trip, and its reason.

    `.` is a success, and `x` a failure.
    """
    passed = 0
    for number, end in enumerate(text, 1):
        if end == ".":
            passed += 1
        elif why := breaker.note(passed, f"error {number}"):
            return number, why
    return None


def test_five_in_a_row_trip_it_with_the_first_error():
    assert ends(CircuitBreaker(5), "..xxxxx") == (7, "5 events in a row failed, the first: error 3")


def test_success_between_begins_a_new_row():
    assert ends(CircuitBreaker(5), "xxxx." * 3) is None
    assert ends(CircuitBreaker(5), "xxxx.xxxxx")[0] == 10


def test_half_of_the_last_hundred_trips_it_with_the_first_error():
    at, why = ends(CircuitBreaker(5), "x." * 100)
    assert at == 99
    assert why == "50 of the last 99 events failed, the first: error 1"


def test_what_was_long_before_does_not_count():
    assert ends(CircuitBreaker(5), "x." * 49 + "." * 100 + "x." * 49) is None
    assert ends(CircuitBreaker(5), "x.." * 200) is None


def test_of_one_it_trips_at_once_and_of_none_never():
    assert ends(CircuitBreaker(1), "x") == (1, "1 event in a row failed, the first: error 1")
    assert ends(CircuitBreaker(None), "x" * 300) is None


def test_room_is_how_many_more_would_trip_it():
    breaker = CircuitBreaker(3)
    assert breaker.room(0) == 3
    breaker.note(0, "error")
    assert breaker.room(0) == 2
    assert breaker.room(1) == 3
    assert CircuitBreaker(None).room(0) is None


def test_events_that_come_again_are_not_counted_twice():
    """Count events in flight as passed.

    If they fail, fewer events have passed than before.
    """
    breaker = CircuitBreaker(2)
    breaker.note(5, "error")
    assert breaker.note(3, "error") == "2 events in a row failed, the first: error"
