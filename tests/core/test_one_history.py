"""Test R11: a view belongs to one history of etcd."""

import pytest
from attrs import evolve
from world import KEYS, KINDS, role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.effects import Level
from rink.core.member_record import MemberRecord
from rink.core.values import Request, Wish

ROLE_OF_B = role_of(1, 2)


def errors(member):
    reports = member.made(do.Report)
    return [report.text for report in reports if report.level is Level.ERROR]


def posted(member):
    return [effect.request for effect in member.made(do.PostRequest)]


# ── the view goes with the lease ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["TTL 0", "record gone in the view", "record gone in an answer"])
def test_lease_over_grants_wait_for_a_list_asked_for_afterwards(pair, how):
    world, b = pair, pair.members["b"]
    hold = world.get("b", ROLE_OF_B)
    world.hold("b", "events")
    match how:
        case "TTL 0":
            world.etcd.end_lease(b.node.member_lease.id)
            world.tell("b", ev.LeaseEnded(b.node.member_lease.id))
        case "record gone in the view":
            gone = world.etcd.changes_after(world.etcd.delete("members/b") or b.seen)
            world.tell("b", gone)
        case "record gone in an answer":
            world.etcd.delete("members/b")
            b.node.writer.must_write = True
            world.tell("b", ev.Nudged())
    assert hold.lost_at is not None
    assert b.node.view.revision == 0
    assert len(b.made(do.ListGroup)) == 1
    world.sleep(1.0)
    assert b.node.member_lease.is_alive
    assert world.get("b", ROLE_OF_B) is None
    assert world.record("b") is None  # nor is a record written by a view that is not there
    world.let("b")
    world.sleep(1.0)
    assert world.want("b", ROLE_OF_B).hold


@pytest.mark.parametrize("in_one_step", [True, False])
def test_list_asked_for_before_the_lease_ended_does_not_count(pair, in_one_step):
    world, b = pair, pair.members["b"]
    listed = world.etcd.listed(b.node.view_state.lists_wanted)
    lease = b.node.member_lease.id
    world.hold("b", "events")
    world.etcd.end_lease(lease)
    if in_one_step:
        world.tell("b", ev.LeaseEnded(lease), listed)
    else:
        world.tell("b", ev.LeaseEnded(lease))
        world.tell("b", listed)
    assert b.node.view.revision == 0


def test_lease_over_while_leaving_asks_for_no_list(pair):
    world, b = pair, pair.members["b"]
    b.lets_go = False
    world.get("b", ROLE_OF_B)
    world.leave("b")
    world.expire(b)
    world.keep_alive(b)
    assert b.made(do.ListGroup) == []


def test_deadline_passed_keeps_the_view(pair):
    """Keep the view: a suspect lease does not show another history."""
    world, b = pair, pair.members["b"]
    b.alive = False
    world.sleep(55.0)
    assert b.node.view.revision
    assert b.made(do.ListGroup) == []


# ── what proves another history ──────────────────────────────────────────────────────────────


def change_own_record(world, name):
    world.node(name).writer.must_write = True
    world.tell(name, ev.Nudged())


@pytest.mark.parametrize("told_by", ["list", "answer"])
def test_own_record_as_of_before_its_last_write_ends_the_session(pair, told_by):
    """Restore a snapshot from between a version and its claim."""
    world, b = pair, pair.members["b"]
    copy = world.etcd.copy()
    change_own_record(world, "b")
    hold = world.get("b", ROLE_OF_B)
    lease = b.node.member_lease.id
    if told_by == "list":
        world.replace_history(copy)
        world.run()
    else:
        world.hold("b", "events")
        world.replace_history(copy)
        change_own_record(world, "b")
    words = {
        "list": "wrote its record at revision",
        "answer": "older than this member's last write",
    }
    assert words[told_by] in hold.lost_because
    assert b.made(do.RevokeLease) == [do.RevokeLease(lease)]
    assert lease not in world.etcd.leases
    assert len(errors(b)) == 1


def test_own_record_as_of_before_is_found_once_however_long_it_stays(pair):
    """Return the list before the lease is revoked with that record."""
    world, b = pair, pair.members["b"]
    copy = world.etcd.copy()
    change_own_record(world, "b")
    world.replace_history(copy)
    world.hold("b", "requests")
    world.run()
    assert len(errors(b)) == 1
    assert len(b.made(do.ListGroup)) == 1
    assert b.node.view.revision
    world.let("b")
    world.sleep(70.0)
    assert len(errors(b)) == 1
    assert world.want("b", role_of(world.ranks.index("b"), 2)).hold


def test_own_record_as_of_before_found_by_list_and_answer_is_one_change(pair):
    """After a long outage a write and a list are under way at once."""
    world, b = pair, pair.members["b"]
    copy = world.etcd.copy()
    change_own_record(world, "b")
    world.hold("b", "requests", "events")
    b.node.writer.must_write = True
    world.tell("b", ev.Nudged())
    world.replace_history(copy)
    world.tell("b", world.etcd.listed(b.node.view_state.lists_wanted))
    assert len(errors(b)) == 1
    world.let("b")
    assert len(errors(b)) == 1
    assert len(b.made(do.ListGroup)) == 1


def test_own_record_as_of_a_later_write_is_put_right_as_ever(pair):
    world, b = pair, pair.members["b"]
    hold = world.get("b", ROLE_OF_B)
    kv = world.etcd.kvs[KEYS.member("b")]
    world.etcd.put("members/b", kv.value, lease=kv.lease)
    world.run()
    assert hold.lost_at is None
    assert errors(b) == []


def test_own_record_missing_is_an_ordinary_lost_session(pair):
    world, b = pair, pair.members["b"]
    world.etcd.delete("members/b")
    world.sleep(1.0)
    assert errors(b) == []
    assert world.want("b", ROLE_OF_B).hold


def listed_with(world, versions):
    """List the group as it is, but with other versions: {number: revision}."""
    listed = world.etcd.listed()
    [newest] = [one for one in listed.entries if getattr(one, "number", 0) == 2]
    others = [one for one in listed.entries if not hasattr(one, "number")]
    made = []
    for number, at in versions.items():
        version = evolve(newest.version, number=number)
        made.append(evolve(newest, number=number, mod_revision=at, version=version))
    return evolve(listed, entries=(*others, *made))


def written_at(world, number):
    return world.etcd.kvs[KEYS.version(number)].mod


def test_newest_version_written_at_another_revision_is_another_history(pair):
    world, b = pair, pair.members["b"]
    hold = world.get("b", ROLE_OF_B)
    world.hold("b", "requests", "answers", "events")
    world.tell("b", listed_with(world, {1: 3, 2: written_at(world, 2) + 1}))
    assert hold.lost_because.startswith("version 2 was written at etcd's revision")
    assert b.node.view.revision == 0


@pytest.mark.parametrize("versions", [{1: 3}, {}], ids=["an earlier one", "none"])
def test_newest_version_below_the_last_one_is_another_history(pair, versions):
    world = pair
    hold = world.get("b", ROLE_OF_B)
    world.hold("b", "requests", "answers", "events")
    world.tell("b", listed_with(world, versions))
    assert hold.lost_because.startswith("the newest version in etcd was 2")


def test_version_that_was_pruned_meanwhile_proves_nothing(pair):
    world, b = pair, pair.members["b"]
    world.hold("b", "requests", "answers", "events")
    world.tell("b", listed_with(world, {3: written_at(world, 2) + 5}))
    assert errors(b) == []
    assert b.node.view.newest.number == 3


def test_newest_version_deleted_under_the_watch_proves_nothing(pair):
    """The watch brings it within one history: an operator did it."""
    world, b = pair, pair.members["b"]
    hold = world.get("b", ROLE_OF_B)
    world.etcd.delete("versions/0000000000000002")
    world.run()
    b.listed = False
    world.run()
    assert errors(b) == []
    assert hold.token


def test_version_is_held_against_the_view_that_went_with_the_lease(pair):
    world, b = pair, pair.members["b"]
    lease = b.node.member_lease.id
    world.hold("b", "events")
    world.replace_history()
    world.tell("b", ev.LeaseEnded(lease))
    assert errors(b) == []
    world.let("b")
    assert len(errors(b)) == 1


def test_history_told_by_the_client_more_than_once_is_one_change(pair):
    """Each call that the change breaks tells it."""
    world, b = pair, pair.members["b"]
    world.hold("b", "requests", "events")
    world.tell("b", ev.HistoryChanged("the term went back"))
    world.tell("b", ev.HistoryChanged("the term went back"))
    assert len(errors(b)) == 1


def test_history_told_while_no_lease_is_held_makes_the_wait_longer(pair):
    """Another change may have come, and others were cut off until then."""
    world, b = pair, pair.members["b"]
    world.hold("b", "requests", "events")
    world.tell("b", ev.HistoryChanged("the term went back"))
    world.now += 20.0
    world.tell("b", ev.HistoryChanged("the revision went back"))
    assert len(errors(b)) == 1
    assert b.node.view_state.history.grants_from == world.now + 60.0


def test_history_told_by_the_client_after_the_lease_ended_counts(pair):
    """The view is gone by then, and what was kept of it may prove nothing."""
    world, b = pair, pair.members["b"]
    world.hold("b", "requests", "events")
    world.tell("b", ev.LeaseEnded(b.node.member_lease.id))
    world.tell("b", ev.HistoryChanged("the cluster id is another one"))
    assert len(errors(b)) == 1
    assert b.node.view_state.history.grants_from == world.now + 60.0


# ── who has found another history ────────────────────────────────────────────────────────────


def test_member_in_a_new_history_grants_nothing_for_the_largest_ttl(world):
    world.add("a", rebalance_delay=0.0, ttl=10, margin=1.0)
    world.add("b", rebalance_delay=0.0, ttl=30, margin=3.0)
    world.sleep(1.0)
    cut_off = world.members["b"]
    cut_off.alive = False
    hold = world.get("b", ROLE_OF_B)
    world.hold("b", "requests", "answers", "events")
    world.replace_history()
    world.sleep(26.0)
    assert hold.lost_at is None
    assert world.ranks == ["a"]
    assert world.get("a", ROLE_OF_B) is None
    assert world.node("a").view_state.history.grants_from == pytest.approx(1001.0 + 30.0, abs=0.5)
    world.sleep(2.0)
    assert hold.lost_at is not None
    assert world.get("a", ROLE_OF_B) is None
    world.sleep(3.0)
    assert world.get("a", ROLE_OF_B)


def test_member_in_a_new_history_counts_the_wait_by_its_own_clock(world):
    member = world.add("a", rebalance_delay=0.0, ttl=10, margin=1.0, clock=(-500.0, 2.0))
    world.replace_history()
    world.sleep(4.9)
    assert world.get("a", "x") is None
    world.sleep(0.2)
    assert world.get("a", "x")
    assert member.node.view_state.history.why_closed(member.time_at(world.now)) == ""


def restored_behind(world, *answers):
    """Make a member hold a role, then find an etcd that counts from 1.

    The member's token is high. Its first requests for a higher token base are answered, but not
    carried out.
    """
    member = world.add("a", rebalance_delay=0.0, ttl=10, margin=1.0)
    for _ in range(50):
        world.etcd.put("notes", b"")
    world.run()
    token = world.get("a", "x").token
    world.etcd.go_on_from(None)
    world.etcd.revision, world.etcd.log = 1, []
    member.listed, member.seen = False, 1
    left, serve = list(answers), world._serve

    def served(member, effect):
        is_post = isinstance(effect, do.PostRequest) and left
        return left.pop(0) if is_post else serve(member, effect)

    world._serve = served
    world.tell("a", ev.HistoryChanged("the revision went back"))
    return member, token


def test_lower_tokens_of_a_new_history_are_raised_before_any_grant(world):
    member, token = restored_behind(world)
    world.sleep(11.0)
    assert world.etcd.revision < token
    assert posted(member) == [Request(Wish.TOKEN_BASE, token_base=token)]
    assert world.version.token_base == token
    assert world.get("a", "x").token > token


def test_lower_tokens_are_waited_out_where_nobody_raises_them(world):
    member, token = restored_behind(world, *[ev.RequestPosted()] * 3)
    world.sleep(25.0)
    assert f"fencing tokens up to {token}" in member.node.table.gate.closed_because
    assert world.get("a", "x") is None
    world.sleep(10.0)  # it is asked for once more, every ten seconds
    assert len(posted(member)) == 4
    assert world.get("a", "x").token > token


def test_token_base_is_asked_for_again_where_that_was_not_answered(world):
    member, token = restored_behind(world, ev.PostFailed(RuntimeError("no answer")))
    world.sleep(25.0)
    assert len(posted(member)) == 2
    assert "asking for a higher token base failed: no answer" in member.reports
    assert world.get("a", "x").token > token


def test_higher_tokens_of_a_new_history_are_left_as_they_are(pair):
    world = pair
    world.replace_history()
    world.sleep(70.0)
    assert [posted(member) for member in world.members.values()] == [[], []]
    assert world.version.token_base == 0
    assert world.want("b", role_of(world.ranks.index("b"), 2)).hold


def test_all_members_of_a_new_history_count_tokens_from_one_base(pair):
    """A raised base of the old history is unknown to members that start fresh."""
    world = pair
    world.etcd.put("requests/u", encode(Request(Wish.TOKEN_BASE, token_base=1_000)))
    world.run()
    for name in "ab":
        world.hold(name, "requests", "answers", "events")
    world.replace_history()
    for _ in range(1_100):
        world.etcd.put("notes", b"")
    world.add("c", rebalance_delay=0.0)
    world.sleep(1.0)
    for name in "ab":
        world.let(name)
    world.sleep(70.0)
    assert len(world.ranks) == 3
    assert len({member.node.table.gate.token for member in world.members.values()}) == 1


def test_largest_ttl_is_that_of_all_records_of_the_view(pair):
    world, b = pair, pair.members["b"]
    slow = encode(MemberRecord("of-c", 900))
    world.etcd.put("members/c", slow, lease=77)
    world.run()
    world.hold("b", "requests", "answers", "events")
    world.tell("b", ev.HistoryChanged("x"))
    assert b.node.view_state.history.ttl == 900
    world.tell(
        "b", b_alone := evolve(world.etcd.listed(b.node.view_state.lists_wanted), entries=())
    )
    assert b_alone.wanted == b.node.view_state.lists_wanted
    world.tell("b", ev.HistoryChanged("y"))
    assert b.node.view_state.history.ttl == 900  # it is the largest that was ever seen


@pytest.mark.parametrize("is_lease_over", [False, True])
def test_record_of_another_member_gone_back_proves_another_history(pair, is_lease_over):
    """Restore a copy that is older than a claim of b, which is cut off.

    It may lack the lease of a, too. Then the view of a is thrown away before the list comes.
    """
    world, a = pair, pair.members["a"]
    copy = world.etcd.copy()
    world.node("b").writer.must_write = True
    world.tell("b", ev.Nudged())
    world.hold("b", *KINDS)
    world.members["b"].alive = False
    world.hold("a", "events")
    world.replace_history(copy)
    if is_lease_over:
        world.etcd.end_lease(a.node.member_lease.id)
        world.tell("a", ev.LeaseEnded(a.node.member_lease.id))
    world.let("a")
    [error] = [text for text in a.reports if "another history" in text]
    assert error.startswith("the record of 'b' was written at etcd's revision ")
    assert a.node.view_state.history.why_closed(world.now)
