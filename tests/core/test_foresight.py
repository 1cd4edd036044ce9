"""What a step asks schemes is known before it (R2): a step of a foreseen member asks for no more."""

import pytest
import walks
import world as worlds

from rink.core import codec
from rink.core import events as ev
from rink.core.foresight import seen
from rink.core.node import Node
from rink.core.placement import Placement
from rink.core.values import Request, Wish
from rink.core.view import View


class Strict(Placement):
    """In a step it knows what it has been asked before it, and nothing else."""

    stepping = False

    def rank(self, role, scheme, size, *, bounded=True):
        known = role in self.ranks(scheme, size) or not self.can_follow(scheme)
        assert known or not self.stepping, f"a step asks {scheme} for {role} of {size}"
        return super().rank(role, scheme, size, bounded=bounded)


class Foreseen(Node):
    """Places what is foreseen and then steps, as the engine does."""

    def __init__(self, settings):
        super().__init__(settings, Strict())
        self.placed = set()

    def step(self, now, events):
        missing = self.foresee(events).missing(self.table.roles, self.placement)
        for role, scheme, size in missing:
            self.placement.rank(role, scheme, size, bounded=False)
        self.placed |= set(missing)
        self.placement.stepping = True
        try:
            return super().step(now, events)
        finally:
            self.placement.stepping = False


@pytest.fixture(autouse=True)
def foreseen(monkeypatch):
    monkeypatch.setattr(worlds, "Node", Foreseen)


def test_waits_are_placed_by_the_version_that_comes_and_by_every_share(world):
    world.add("a", rebalance_delay=0.0)
    role = worlds.role_of(1, 2)
    world.want("a", role)
    world.add("b", rebalance_delay=0.0)
    world.sleep(1.0)
    assert (role, "jump", 1) in world.node("a").placed
    assert (role, "jump", 2) in world.node("a").placed
    assert world.node("a").table.lost == {}


def test_what_a_version_pins_is_placed_by_whoever_follows_it(pair):
    pair.etcd.put("requests/u", codec.encode(Request(Wish.PIN, "pinned", "b")))
    pair.run()
    assert pair.version.pins == {"pinned": "b"}
    for name in "ab":
        assert ("pinned", "jump", 2) in pair.node(name).placed
    assert pair.holders(["pinned"]) == {"pinned": "b"}


def test_a_group_of_another_history_foresees_nothing():
    view = View(7)
    assert seen(view, ev.HistoryChanged("restored")) == View()
    assert seen(View(), ev.Changed(9, ())) == View()  # no list came before it


def test_no_step_of_a_walk_asks_for_what_was_not_foreseen():
    for seed in range(20):
        walks.walk(walks.draw(seed, 150))
