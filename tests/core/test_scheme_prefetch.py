"""Test that a step asks schemes only for ranks that were prefetched (R2)."""

import pytest
import walks
import world as worlds
from attrs import evolve
from derived import Strict

from rink.core import codec, schemes
from rink.core import events as ev
from rink.core.holds import Handle, Table
from rink.core.member_record import MemberRecord, Share
from rink.core.scheme_prefetch import Placing, SchemePrefetch, view_after
from rink.core.values import Member, Request, Wish
from rink.core.view import View


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


def test_group_of_another_history_needs_no_ranks():
    view = View(7)
    assert view_after(view, ev.HistoryChanged("restored")) == View()
    assert view_after(View(), ev.Changed(9, ())) == View()  # no list came before it


def test_pair_is_complete_only_once_its_scheme_is_known():
    """Let a foreign share claim everything until its scheme is registered."""
    name, table, places, placing = "late@1#0", Table(), Strict(), Placing()
    view = View.listed(1, [member("b", shares=(Share(0, 1, "jump"), Share(0, 1, name)))])
    prefetch = SchemePrefetch.of(view, None, None)
    table.want(Handle("x"))
    assert placing.missing(prefetch, table, places) == [("x", "jump", 1)]
    placing.done(table, set())
    assert (placing.complete, table.unplaced) == ({("jump", 1)}, set())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(schemes._custom, name, schemes.JUMP)
        assert ("x", name, 1) in placing.missing(prefetch, table, places)


def test_placing_asks_for_what_is_left_out_again():
    table, places, placing = Table(), Strict(), Placing()
    prefetch = SchemePrefetch.of(
        View.listed(1, [member("b", shares=(Share(0, 1, "jump"),))]), None, None
    )
    for role in "xy":
        table.want(Handle(role))
    placing.missing(prefetch, table, places)
    places.rank("x", "jump", 1)
    placing.done(table, {"y"})
    assert placing.missing(prefetch, table, places) == [("y", "jump", 1)]


def test_view_of_a_step_is_folded_from_all_its_events(pair):
    node = pair.node("a")
    newer = evolve(node.view.members["b"], mod_revision=node.view.revision + 1)
    events = [ev.Nudged(), ev.Changed(newer.mod_revision, (newer,)), ev.Nudged()]
    pair.step(pair.members["a"], events)
    assert node.view.members["b"] is newer
    assert node.view.revision == newer.mod_revision


def test_change_of_history_that_was_handled_is_not_prefetched(world):
    """Keep the view at a second report, behind which a version may pin roles."""
    name = schemes.register(lambda role, size: 0, "history", 1)
    member = world.add("a", schemes=(name,), rebalance_delay=0.0)
    world.sleep(3.0)
    world.hold("a", "requests", "answers")
    world.step(member, [ev.HistoryChanged("another cluster")])
    member.listed = False
    world.run()
    view = member.node.view
    ranks = (*view.version.ranks, "b")
    version = evolve(view.version, number=2, pins={"pinned": "a"}, ranks=ranks)
    newest = evolve(view.newest, number=2, version=version, mod_revision=view.revision + 1)
    again = ev.HistoryChanged("another cluster, once more")
    world.step(member, [again, ev.Changed(view.revision + 1, (newest,))])
    assert ("pinned", name, 2) in member.node.placed


def member(name, **record):
    return Member(name, MemberRecord("i", 9, **record), 1, 1, 7)


def test_no_step_of_a_walk_asks_for_ranks_not_prefetched():
    for seed in range(20):
        walks.walk(walks.draw(seed, 150))
