"""Test what the coordinator proclaims and when, and that it goes on (R4)."""

from world import KEYS, role_of

from rink.core import coordinator
from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.member_record import MemberRecord
from rink.core.values import Request, Version, Wish
from rink.errors import EtcdTooLarge


def proclaimed(world, name):
    return [effect.version.number for effect in world.members[name].made(do.Proclaim)]


def ask(world, name, *requests):
    """Put requests as an operator does, all at one revision.

    A test runs the world afterwards.
    """
    world.etcd.change(
        {KEYS.request(f"{name}{index}"): (encode(r), 0) for index, r in enumerate(requests)}
    )


# ── proclaiming ──────────────────────────────────────────────────────────────────────────────


def test_oldest_record_coordinates_and_the_next_when_it_is_gone(pair):
    assert [pair.node(n).coordinates for n in "ab"] == [True, False]
    b = pair.members["b"]
    pair.expire(pair.kill("a"))
    assert b.node.coordinates
    assert pair.version.by == "b"
    assert b.made(do.CoordinatorChanged) == [do.CoordinatorChanged(True)]


def test_version_says_what_changed_and_by_whom(pair):
    pair.expire(pair.kill("b"))
    version = pair.version
    assert (version.number, version.by, version.because) == (3, "a", ("expired b",))


def test_coordinator_that_is_one_no_more_proclaims_nothing(pair):
    """Check the record in the transaction, since the watch may be late."""
    world = pair
    world.hold("a", "requests", "events")
    world.hold("b", "events")
    world.expire(world.kill("b"))
    world.carry(world.members["a"], "events")
    assert proclaimed(world, "a")[-1] == 3
    world.etcd.delete("members/a")
    world.etcd.put("members/a", encode(MemberRecord("another", 60)), 99)
    number = world.version.number
    world.carry(world.members["a"], "requests")
    assert world.version.number == number


def test_of_two_who_proclaim_the_same_number_only_the_first_succeeds(pair):
    world = pair
    world.hold("a", "requests", "answers")
    world.add("c", rebalance_delay=0.0)
    stray = Version(3, ("a", "b"), "jump", because=("first",))
    world.etcd.put("versions/0000000000000003", encode(stray))
    world.let("a")
    world.sleep(0.5)
    assert world.ranks == ["a", "b", "c"]
    assert world.version.number == 4
    assert world.etcd.entry(KEYS.version(3)).version == stray


def test_proclamation_without_an_answer_is_tried_again_and_counts_once(pair):
    world = pair
    world.hold("a", "requests")
    world.add("c", rebalance_delay=0.0)
    world.lose("a")
    world.let("a")
    world.sleep(1.0)
    assert proclaimed(world, "a")[-2:] == [3, 3]
    assert world.ranks == ["a", "b", "c"]
    world.thaw()
    assert world.etcd.versions == [1, 2, 3]


def test_proclamation_whose_answer_was_lost_is_found_in_the_view(pair):
    world = pair
    world.hold("a", "requests")
    world.add("c", rebalance_delay=0.0)
    world.lose("a", answer=True)
    world.let("a")
    world.add("d", rebalance_delay=0.0)
    world.sleep(1.0)
    assert world.etcd.versions == [1, 2, 3, 4]


def test_coordinator_goes_on_after_a_refusal_that_the_view_has_shown(pair):
    """Delete the log during a proclamation; its event precedes the answer."""
    world = pair
    world.hold("a", "requests")
    world.add("c", rebalance_delay=0.0)
    world.hold("a", "answers")
    world.etcd.delete("versions/")
    world.let("a", "requests")
    world.let("a", "answers")
    world.sleep(1.0)
    assert world.version.number == 1
    assert set(world.ranks) == {"a", "b", "c"}


def test_coordinator_goes_on_after_a_version_deleted_before_it_was_seen(pair):
    world = pair
    world.hold("a", "events")
    world.add("c", rebalance_delay=0.0)
    world.carry(world.members["a"], "events")
    world.run()
    assert world.version.number == 3
    world.etcd.delete("versions/0000000000000003")
    world.members["a"].listed = False  # the watch was compacted away: it never saw version 3
    world.let("a")
    assert world.version.number == 2
    world.sleep(3.0)
    assert world.ranks == ["a", "b", "c"]


def test_refusals_come_ever_more_rarely(pair):
    world = pair
    member = world.members["a"]
    world.hold("a", "requests")
    world.add("c", rebalance_delay=0.0)
    waits = []
    for _ in range(6):
        member.to_etcd.clear()
        before = world.now
        world.tell("a", ev.ProclaimAnswered(3, False))
        while not member.to_etcd:
            world.sleep(member.node.wake_at - world.now)
        waits.append(world.now - before)
    assert waits[-1] > 5 * waits[0]


def request_counts(world, name):
    return [len(effect.requests) for effect in world.members[name].made(do.Proclaim)]


def burst(world, name, count):
    ask(world, name, *(Request(Wish.PIN, f"{name}{index}", "b") for index in range(count)))
    world.run()


def test_coordinator_halves_a_burst_of_requests_that_etcd_refuses(pair):
    """And learns from it: the next burst is not refused."""
    pair.etcd.max_txn_ops = 64
    tried = len(request_counts(pair, "a"))
    burst(pair, "u", 90)
    assert request_counts(pair, "a")[tried:] == [90, 45, 45]
    assert len(pair.version.pins) == 90
    assert "proclaiming version 3 with 90 requests (45 in the next try) failed" in " ".join(
        pair.members["a"].reports
    )
    burst(pair, "v", 60)
    assert request_counts(pair, "a")[tried + 3 :] == [45, 15]
    assert len(pair.version.pins) == 150


def test_coordinator_ranks_without_requests_that_etcd_never_takes(pair):
    """Never let ranks wait for requests, not even for a backoff.

    One request is tried again with each following version.
    """
    pair.etcd.max_txn_ops = 1
    tried = len(request_counts(pair, "a"))
    pair.hold("a", "requests")
    burst(pair, "u", 3)
    pair.add("c", rebalance_delay=0.0)
    pair.let("a")
    assert request_counts(pair, "a")[tried:] == [3, 1, 0, 1]
    assert pair.ranks == ["a", "b", "c"]
    pair.sleep(100.0)
    assert len(request_counts(pair, "a")) == tried + 4
    assert pair.version.pins == {}
    pair.etcd.max_txn_ops = 128
    pair.add("d", rebalance_delay=0.0)
    assert len(pair.version.pins) == 3


def test_coordinator_backs_off_where_etcd_refuses_a_bare_version(pair):
    pair.etcd.max_txn_ops = 0
    tried = len(request_counts(pair, "a"))
    pair.add("c", rebalance_delay=0.0)
    pair.sleep(10.0)
    assert 3 < len(request_counts(pair, "a")) - tried < 20
    pair.etcd.max_txn_ops = 128
    pair.sleep(3.0)
    assert pair.ranks == ["a", "b", "c"]


def test_answer_about_an_earlier_version_is_passed_over(pair):
    node = pair.node("a")
    pair.tell("a", ev.ProclaimAnswered(1, False), ev.ProclaimFailed(1, OSError()))
    assert node.coordinator.failures == 0
    assert node.wake_at > pair.now + 1.0


def test_coordinator_decides_nothing_over_a_version_it_cannot_read(pair):
    pair.etcd.put("versions/0000000000000003", b'{"format":2}')
    pair.run()
    pair.expire(pair.kill("b"))
    pair.sleep(100.0)
    assert proclaimed(pair, "a") == [1, 2]
    assert pair.node("a").upcoming is None


def test_junk_version_of_a_giant_number_costs_no_time(pair):
    pair.etcd.put("versions/9999999999999999", b"junk")
    pair.run()
    assert pair.node("a").view.newest.number == 9999999999999999
    pair.etcd.delete("versions/9999999999999999")
    pair.expire(pair.kill("b"))
    assert pair.ranks == ["a"]


def test_plans_next_time_is_told(pair):
    pair.add("c", rebalance_delay=60.0)
    assert pair.node("a").upcoming.at == pair.now + 60.0
    assert pair.node("b").upcoming is None


# ── pruning ──────────────────────────────────────────────────────────────────────────────────


def many_versions(world, count):
    last = world.version.number
    for number in range(last + 1, last + 1 + count):
        ask(world, f"{number}-", Request(Wish.UNPIN, "x"))
        world.run()
    assert world.version.number == last + count


def test_last_hundred_versions_are_kept(pair):
    many_versions(pair, 250)
    numbers = sorted(pair.node("a").view.versions)
    assert numbers[-1] == 252
    assert 100 <= len(numbers) < 111
    assert numbers == list(range(numbers[0], 253))
    assert len(pair.members["a"].made(do.Prune)) <= 20


def test_fewer_are_kept_when_they_are_large_and_never_fewer_than_two(pair, monkeypatch):
    monkeypatch.setattr(coordinator, "MAX_KEPT_BYTES", 1000)
    many_versions(pair, 20)
    kept = pair.node("a").view.versions.values()
    assert sum(entry.bytes for entry in kept) <= 1000 + max(entry.bytes for entry in kept)
    monkeypatch.setattr(coordinator, "MAX_KEPT_BYTES", 1)
    many_versions(pair, 3)
    assert len(pair.node("a").view.versions) == 2


def test_log_that_was_begun_anew_is_pruned_like_the_first(pair):
    many_versions(pair, 150)
    pair.etcd.delete("versions/")
    pair.run()
    assert pair.version.number == 1
    many_versions(pair, 150)
    assert len(pair.node("a").view.versions) < 111


# ── who coordinates ──────────────────────────────────────────────────────────────────────────


def test_oldest_active_coordinates_while_an_older_one_lets_go(pair):
    """Nothing stalls behind a member that leaves and does not let go."""
    world, a = pair, pair.members["a"]
    a.lets_go = False
    world.get("a", role_of(0, 2))
    world.leave("a")
    assert world.node("b").coordinates
    assert not a.node.coordinates
    assert world.ranks == ["b"]
    world.add("c", rebalance_delay=0.0)
    world.sleep(1.0)
    assert world.ranks == ["b", "c"]
    assert "a" in world.members


def test_request_refused_for_its_size_is_tried_after_a_late_answer(world):
    """Cover an answer after the version's event, which used to be ignored."""
    for name in "ab":
        world.add(name, rebalance_delay=0.0, initial_delay=0.0)
    world.sleep(3.0)
    a = world.members["a"]
    world.hold("a", "requests", "answers")
    ask(world, "u", Request(Wish.PIN, "x", "b"))
    world.run()
    refused = ev.ProclaimFailed(a.to_etcd.popleft().version.number, EtcdTooLarge("too large"))
    world.tell("a", refused)
    assert a.node.coordinator.requests_at_once == 0
    world.add("c", rebalance_delay=0.0, initial_delay=0.0)
    world.let("a", "requests")
    world.sleep(3.0)
    world.let("a")
    world.sleep(3.0)
    assert world.ranks == ["a", "b", "c"]
    assert world.version.pins == {"x": "b"}
    assert not world.node("a").view.requests
