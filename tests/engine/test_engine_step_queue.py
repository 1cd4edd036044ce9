"""Check that engines wait for each other's steps, but not for a stuck one."""

import threading

import pytest

from rink.engine import step_queue
from rink.engine.step_queue import TURN_TIMEOUT_S, StepQueue

PATIENCE_S = 15


class Lock:
    """A waiter's own lock. Each wait is over at once; other turns may end."""

    def __init__(self, queue, ended_meanwhile):
        self.queue, self.ended_meanwhile, self.waits = queue, list(ended_meanwhile), 0
        self.is_free = True

    def acquire(self, timeout=None):
        if self.is_free:
            self.is_free = False
            return True
        assert timeout == TURN_TIMEOUT_S
        self.waits += 1
        self.queue._ended_turns += self.ended_meanwhile.pop(0) if self.ended_meanwhile else 0
        return False

    def release(self):
        self.is_free = True


@pytest.fixture
def waiting(monkeypatch):
    """Return the waits for a turn while a number of other turns ended."""

    def wait(*ended_meanwhile):
        queue = StepQueue()
        with queue.turn():
            lock = Lock(queue, ended_meanwhile)
            with monkeypatch.context() as patch:
                patch.setattr(step_queue.threading, "Lock", lambda: lock)
                with queue.turn():
                    pass
            assert queue.is_taken, "whoever went on without ended another's turn"
            assert not queue._queue
        assert not queue.is_taken
        return lock.waits

    return wait


def test_turn_is_waited_for_as_long_as_others_end(waiting):
    assert waiting(1, 3, 1) == 4


def test_nobody_waits_for_a_turn_that_does_not_end(waiting):
    assert waiting() == 1
    assert waiting(2, 1, 0, 1) == 3


def test_turns_are_taken_in_the_order_they_were_asked_for(monkeypatch):
    """Else one of many engines may wait for longer than its TTL."""
    monkeypatch.setattr(step_queue, "TURN_TIMEOUT_S", PATIENCE_S)
    queue, order, threads = StepQueue(), [], []

    def step(number):
        with queue.turn():
            order.append(number)

    with queue.turn():
        for number in range(20):
            threads.append(threading.Thread(target=step, args=(number,)))
            threads[-1].start()
            while len(queue._queue) <= number:
                assert threads[-1].is_alive()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == list(range(20))
    assert not queue.is_taken
