"""Test that `settle` waits until all reports of the members are read."""

import threading

import pytest
from members import settle

from rink.core.schemes import rank_of
from rink.testing.history import History, HistoryEvent

pytestmark = pytest.mark.waits

ROLES = [next(f"r{n}" for n in range(99) if rank_of(f"r{n}", 2) == rank) for rank in (0, 1)]


class Member:
    """Answer with a rank, as a member's process does."""

    def __init__(self, name, rank):
        self.name, self.rank = name, rank

    def ask(self, command):
        return {"rank": self.rank}


def test_settle_waits_for_a_loss_that_is_read_after_the_gain():
    """Read a loss after the gain that followed it.

    Each member reports through its own pipe, so reports can be read in another order.
    """
    stays, moves = ROLES
    history = History([HistoryEvent("gained", "a", 1.0, role, 1) for role in ROLES])
    history.add(HistoryEvent("gained", "b", 2.1, moves, 2))
    late = threading.Timer(0.3, history.add, [HistoryEvent("let go", "a", 2.0, moves, 1)])
    late.start()
    settle(history, [Member("a", 0), Member("b", 1)], ROLES)
    assert history.judge().problems == []
    assert history.holders == {stays: "a", moves: "b"}
    late.join()
