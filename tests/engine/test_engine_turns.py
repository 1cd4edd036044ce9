"""The engines of a process wait for each other's steps, and never for one that is stuck."""

from rink.engine.turns import LONGEST_TURN_S, Turns


class Busy:
    """A lock that is had at the n-th try; between two tries others' turns may end."""

    def __init__(self, turns, ended_meanwhile):
        self.turns, self.ended_meanwhile = turns, list(ended_meanwhile)
        self.tries = self.released = 0

    def acquire(self, timeout):
        assert timeout == LONGEST_TURN_S
        self.tries += 1
        if not self.ended_meanwhile:
            return True
        self.turns._ended += self.ended_meanwhile.pop(0)
        return False

    def release(self):
        self.released += 1


def waiting(*ended_meanwhile):
    """What became of a turn that was waited for, while so many others ended between two tries."""
    turns = Turns()
    turns._lock = lock = Busy(turns, ended_meanwhile)
    with turns.taken():
        pass
    return lock.tries, lock.released


def test_a_turn_is_waited_for_as_long_as_others_end():
    assert waiting() == (1, 1)
    assert waiting(1, 3, 1) == (4, 1)


def test_nobody_waits_for_a_turn_that_does_not_end():
    assert waiting(0) == (1, 0)
    assert waiting(2, 1, 0, 1) == (3, 0)


def test_a_turn_that_ended_lets_the_next_one_wait_on():
    turns = Turns()
    for ended in range(3):
        assert turns._ended == ended
        with turns.taken():
            assert turns._lock.locked()
        assert not turns._lock.locked()
