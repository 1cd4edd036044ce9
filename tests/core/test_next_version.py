"""The next version: operators' requests, its size, and its scheme."""

import pytest
from world import KEYS, ROLES, World, role_of

from rink.core.codec import encode
from rink.core.member_record import MemberRecord, Phase
from rink.core.next_version import VERSION_LIMIT_BYTES, draft, without_room
from rink.core.observed_times import ObservedTimes
from rink.core.ranks import STARTED, RankSettings
from rink.core.schemes import register
from rink.core.values import Member, Proclaimed, Request, Version, Wish
from rink.core.view import View

MINE = register(lambda _, __: 0, "draft-tests", 1)


def ask(world, name, *requests):
    """Put requests as an operator does, all at one revision.

    A test runs the world afterwards.
    """
    world.etcd.change(
        {KEYS.request(f"{name}{index}"): (encode(r), 0) for index, r in enumerate(requests)}
    )


def bound(name, create, **record):
    return Member(name, MemberRecord("i", 60, **record), create, create, 1)


# ── requests ─────────────────────────────────────────────────────────────────────────────────


def test_requests_are_carried_out_in_one_version_and_deleted_with_it(pair):
    role = role_of(0, 2)
    hold = pair.get("a", role)
    ask(pair, "u", Request(Wish.PIN, role, "b"), Request(Wish.TOKEN_BASE, token_base=500))
    pair.run()
    assert pair.version.pins == {role: "b"}
    assert pair.version.token_base == 500
    assert pair.version.because == (f"pinned {role} to b", "token base 0 -> 500")
    assert not [key for key in pair.etcd.kvs if b"/requests/" in key]
    pair.sleep(0.1)
    assert pair.holders([role]) == {role: "b"}
    assert pair.get("b", role).token > hold.token + 499
    ask(pair, "v", Request(Wish.UNPIN, role))
    pair.run()
    pair.sleep(0.1)
    assert pair.version.pins == {}
    assert pair.holders([role]) == {role: "a"}


def test_pin_to_a_member_that_is_not_ranked_waits_for_it(pair):
    world = pair
    role = role_of(0, 2)
    ask(world, "u", Request(Wish.PIN, role, "c"))
    world.run()
    assert world.holders([role]) == {role: "a"}
    world.add("c", rebalance_delay=0.0)
    world.sleep(0.1)
    assert world.holders([role]) == {role: "c"}
    world.leave("c")
    assert world.version.pins == {role: "c"}
    world.sleep(0.1)
    assert world.holders([role]) == {role: "a"}


def test_wish_that_changes_nothing_is_answered_all_the_same(pair):
    requests = [
        Request(Wish.UNPIN, "nothing"),
        Request(Wish.TOKEN_BASE, token_base=-5),
        Request(Wish.PIN, "", "b"),
        Request(Wish.PIN, "r", ""),
    ]
    ask(pair, "u", *requests)
    pair.run()
    assert pair.version.because == (
        "request unpin changed nothing",
        "request token_base changed nothing",
        "request pin changed nothing",
        "request pin changed nothing",
    )
    assert not [key for key in pair.etcd.kvs if b"/requests/" in key]
    assert pair.version.token_base == 0


def test_token_base_is_carried_on_and_never_lowered(pair):
    ask(pair, "u", Request(Wish.TOKEN_BASE, token_base=500))
    pair.run()
    ask(pair, "v", Request(Wish.TOKEN_BASE, token_base=400))
    pair.expire(pair.kill("b"))
    assert pair.version.token_base == 500


def test_request_that_cannot_be_read_is_reported_and_left(pair):
    pair.etcd.put("requests/odd", b'{"format":1,"wish":"dance"}')
    pair.run()
    assert any("requests/odd" in text for text in pair.members["a"].reports)
    assert pair.version.number == 2
    assert KEYS.request("odd") in pair.etcd.kvs


def test_request_waits_for_the_first_version():
    world = World()
    ask(world, "u", Request(Wish.PIN, "x", "b"))
    world.add("a")
    assert world.etcd.versions == [1, 2]
    assert world.version.pins == {"x": "b"}


# ── size ─────────────────────────────────────────────────────────────────────────────────────


def test_wish_for_too_many_pins_is_refused_and_ranking_goes_on(pair):
    world = pair
    ask(world, "u", *(Request(Wish.PIN, f"{index}" + "x" * 8000, "b") for index in range(150)))
    world.run()
    world.sleep(0.1)
    assert 100 < len(world.version.pins) < 120
    assert not [key for key in world.etcd.kvs if b"/requests/" in key]
    world.expire(world.kill("b"))
    assert world.ranks == ["a"]


def test_more_wishes_than_a_transaction_has_operations_are_granted_in_turn(pair):
    """Keep below the 128 operations that etcd accepts in a transaction."""
    ask(pair, "u", *(Request(Wish.PIN, f"role-{index:03}", "b") for index in range(300)))
    pair.run()
    pair.sleep(0.1)
    assert len(pair.version.pins) == 300
    assert pair.version.number == 2 + 3
    assert not [key for key in pair.etcd.kvs if b"/requests/" in key]
    assert "failed" not in pair.node("a").out.last_error


@pytest.fixture
def narrow(pair, monkeypatch):
    """Versions may take 1,000 bytes, names and pins 500 of them, pins 400."""
    limit(monkeypatch, 1000)
    return pair


def limit(monkeypatch, version):
    monkeypatch.setattr("rink.core.next_version.VERSION_LIMIT_BYTES", version)
    monkeypatch.setattr("rink.core.next_version.BECAUSE_LIMIT_BYTES", 300)
    monkeypatch.setattr("rink.core.next_version.FIELDS_LIMIT_BYTES", 200)
    monkeypatch.setattr("rink.core.next_version.NAMES_LIMIT_BYTES", 100)


LONG = "c" * 490


def test_who_has_no_room_in_a_version_is_not_ranked_and_everybody_else_is(narrow):
    world = narrow
    for name in (LONG, "d"):
        world.add(name, rebalance_delay=0.0)
    world.sleep(0.1)
    assert world.ranks == ["a", "b", "d"]
    world.expire(world.kill("b"))
    assert world.ranks == ["a", "d"]


def test_coordinator_says_once_who_has_no_room(narrow):
    a = narrow.members["a"]
    narrow.add(LONG, rebalance_delay=0.0)
    narrow.add("d", rebalance_delay=0.0)
    narrow.sleep(100.0)
    [text] = [text for text in a.reports if "no room" in text]
    assert "'cccc" in text
    assert "1000 bytes" in text
    assert "shorter member names, fewer pins, or several groups" in a.node.out.last_error


def obstacle(world, name):
    node = world.node(name)
    return node.hold_obstacles((), world.now).obstacle("x", node.placement)


def test_member_that_cannot_be_ranked_says_why_itself(narrow):
    narrow.add(LONG, rebalance_delay=0.0)
    narrow.add("d", rebalance_delay=60.0)
    narrow.sleep(0.1)
    narrow.want(LONG, "x")
    text = obstacle(narrow, LONG)
    assert text.startswith("version 2 does not rank this member: it has no room for its name")
    assert "1000 bytes" in text
    assert "shorter member names, fewer pins, or several groups" in text
    assert obstacle(narrow, "d").startswith("not ranked yet: the group grows for this member in")


def test_who_has_no_room_takes_the_rank_of_a_member_that_makes_room(world, monkeypatch):
    for name in ("a", "b" * 400):
        world.add(name, rebalance_delay=0.0)
    world.sleep(0.1)
    limit(monkeypatch, 1350)
    world.add(LONG, rebalance_delay=0.0)
    world.sleep(0.1)
    assert world.ranks == ["a", "b" * 400]
    world.leave("b" * 400)
    world.sleep(0.1)
    assert world.ranks == ["a", LONG]


def test_version_that_is_too_large_ranks_no_newcomer_and_drops_leavers(pair, monkeypatch):
    world = pair
    monkeypatch.setattr("rink.core.next_version.VERSION_LIMIT_BYTES", 170)
    world.add("c" * 200, rebalance_delay=0.0)
    world.sleep(0.1)
    assert world.ranks == ["a", "b"]
    world.expire(world.kill("b"))
    assert world.ranks == ["a"]


def test_causes_and_fields_of_the_newest_version_take_no_room_twice(narrow):
    """They have their reserve already, and do not stay."""
    assert narrow.etcd.entry(KEYS.version(narrow.version.number)).bytes > 120
    narrow.add("c" * 450, rebalance_delay=0.0)
    narrow.sleep(0.1)
    assert narrow.ranks == ["a", "b", "c" * 450]


@pytest.mark.parametrize("odd", [{"schemes": ("jump",)}, {"phase": Phase.LEAVING}])
def test_whoever_cannot_be_ranked_anyway_takes_no_room(world, monkeypatch, odd):
    limit(monkeypatch, 1000)
    add(world, "a", (MINE,))
    world.sleep(0.1)
    world.etcd.leases.add(77)
    world.etcd.put(
        f"members/{'o' * 300}", encode(MemberRecord("i", 60, **{"schemes": (MINE,), **odd})), 77
    )
    add(world, "d" * 250, (MINE,))
    world.sleep(0.1)
    assert world.ranks == ["a", "d" * 250]


def test_full_set_of_pins_leaves_room_for_newcomers_and_replacements(narrow):
    world = narrow
    ask(world, "u", *(Request(Wish.PIN, f"r{index:02}", "b") for index in range(99)))
    world.run()
    world.sleep(0.1)
    assert 30 < len(world.version.pins) < 40
    world.add("c" * 40, rebalance_delay=0.0)
    world.add("d" * 40, rebalance_delay=60.0)
    world.sleep(1.0)
    assert world.ranks == ["a", "b", "c" * 40]
    world.expire(world.kill("b"))
    assert world.ranks == ["a", "d" * 40, "c" * 40]
    ask(world, "v", Request(Wish.PIN, "r00", "a"), Request(Wish.PIN, "more", "a"))
    world.run()
    assert world.version.pins["r00"] == "a"
    assert "more" not in world.version.pins


def test_bytes_of_pins_are_counted_as_they_change(narrow):
    pins = [Request(Wish.PIN, name * 120, "b") for name in "xyz"]
    ask(narrow, "u", *pins, Request(Wish.PIN, "z" * 120, "c"), Request(Wish.PIN, "w" * 120, "b"))
    narrow.run()
    assert [name[0] for name in narrow.version.pins] == ["x", "y", "z"]
    unpin = [Request(Wish.UNPIN, name * 120) for name in "xz"]
    ask(narrow, "v", *unpin, Request(Wish.PIN, "v" * 240, "b"), Request(Wish.PIN, "more", "b"))
    narrow.run()
    assert [name[0] for name in narrow.version.pins] == ["y", "v", "m"]


def test_ranks_that_are_kept_for_the_gone_make_no_version_too_large():
    """Give newcomers the lowest ranks of gone members.

    The other ranks stay for their `leave_delay`.
    """
    long = "x" * 8000
    old = [f"small{index}" for index in range(110)] + [f"{index}{long}" for index in range(110)]
    new = [bound(f"new{index}{long}", 500 + index, rebalance_delay=0.0) for index in range(110)]
    version, observed_times = Version(1, ("a", *old), "jump"), ObservedTimes()
    ranked = []
    for now in (0.0, 1.0, 30.0):
        newest = Proclaimed(version.number, version, 400, len(encode(version)))
        view = View.listed(1000 + version.number, [bound("a", 1), *new, newest])
        observed_times.note(view, now)
        settings = RankSettings(leave_delay=30.0)
        drafted = draft("a", view, observed_times, True, now, settings, without_room(view))
        version = drafted.version or version
        assert len(encode(version)) <= VERSION_LIMIT_BYTES
        ranked.append(sum(name.startswith("new") for name in version.ranks))
    assert 0 < ranked[0] == ranked[1] < 110 == ranked[2]


def test_ten_thousand_members_fit_into_a_version():
    records = [
        bound(f"worker-{index:05}-with-a-name-of-some-length", index) for index in range(10_000)
    ]
    view, observed_times = View.listed(10_001, records), ObservedTimes()
    observed_times.note(view, 0.0)
    drafted = draft("a", view, observed_times, True, 0.0, RankSettings())
    assert len(drafted.version.ranks) == 10_000
    assert len(encode(drafted.version)) < VERSION_LIMIT_BYTES
    assert drafted.version.because[0] == STARTED
    assert drafted.version.because[-1].endswith(" more")


# ── schemes ──────────────────────────────────────────────────────────────────────────────────

OLD, NEW = ("jump",), ("balanced:8", "jump")


def add(world, name, schemes, **settings):
    return world.add(name, schemes=schemes, rebalance_delay=0.0, **settings)


def test_scheme_changes_when_every_ranked_member_prefers_the_same_one(world):
    add(world, "a", OLD)
    add(world, "b", NEW)
    world.sleep(0.1)
    assert world.version.scheme == "jump"
    world.holders(ROLES)
    world.leave("a")
    world.sleep(0.1)
    assert world.version.scheme == "balanced:8"
    assert world.etcd.entry(KEYS.version(3)).version.because == ("scheme jump -> balanced:8",)
    assert world.holders(["orders/0", *ROLES]).keys() == {"orders/0", *ROLES}


def test_scheme_stays_while_a_member_that_cannot_follow_another_offers(world):
    """Let a member serve on until a newcomer has its rank."""
    a = add(world, "a", OLD, handover_wait=20.0)
    add(world, "b", (MINE, *OLD), handover_wait=20.0)
    world.sleep(0.1)
    for role in ROLES:
        world.want("a", role)
    world.leave("a")
    world.sleep(10.0)
    assert (world.version.scheme, world.ranks) == ("jump", ["a", "b"])
    world.add("n", schemes=(MINE, *OLD), rebalance_delay=60.0)
    world.sleep(0.1)
    assert a.left
    assert (world.version.scheme, world.ranks) == (MINE, ["n", "b"])


def test_one_old_pod_that_comes_back_drags_nobody_back_and_is_not_ranked(world):
    add(world, "a", (MINE,))
    world.sleep(0.1)
    for _ in range(3):
        member = add(world, "old", OLD)
        world.sleep(1.0)
        assert member.joined
        assert member.node.share is None
        world.expire(world.kill("old"))
    assert world.version.scheme == MINE
    assert world.version.number == 1


def test_scheme_that_no_member_can_follow_gives_way_to_the_oldest_ones(world):
    add(world, "a", (MINE,))
    b = add(world, "b", OLD)
    assert b.node.share is None
    world.expire(world.kill("a"))
    world.sleep(0.1)
    assert world.version.scheme == "jump"
    assert world.ranks == ["b"]
    assert world.holders(ROLES) == dict.fromkeys(ROLES, "b")


def test_draft_member_with_another_built_in_scheme_is_ranked(world):
    """Rank it: every member can follow every built-in scheme."""
    add(world, "a", ("balanced:4",))
    add(world, "b", ("balanced:8",))
    world.sleep(0.1)
    assert (world.ranks, world.version.scheme) == (["a", "b"], "balanced:4")
    assert world.holders(ROLES).keys() == set(ROLES)
    world.leave("a")
    world.sleep(0.1)
    assert (world.ranks, world.version.scheme) == (["b"], "balanced:8")


def test_draft_member_that_cannot_follow_is_told_so_once_not_yet(world):
    add(world, "a", (MINE,))
    b = add(world, "b", OLD)
    world.etcd.put("requests/u", encode(Request(Wish.PIN, "x", "a")))  # the view changes again
    world.sleep(100.0)
    because = b.node.table.gate.closed_because
    assert f"cannot follow the group's scheme {MINE!r}" in because
    assert not because.endswith("yet")
    assert [text for text in b.reports if "cannot follow" in text] == [b.node.out.last_error]
    assert "members/b: is not ranked: it cannot follow" in b.node.out.last_error
    assert not any("cannot follow" in text for text in world.members["a"].reports)


def test_member_that_lists_no_scheme_changes_nothing():
    record = MemberRecord("i", 60, schemes=())
    world = World()
    world.etcd.leases.add(77)
    world.etcd.put("members/none", encode(record), 77)
    add(world, "a", OLD)
    world.sleep(0.1)
    world.etcd.put("versions/0000000000000001", encode(Version(1, ("none",), "jump")))
    world.sleep(1.0)
    assert world.version is None or world.version.scheme == "jump"
