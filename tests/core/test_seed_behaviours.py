"""Test what Go Rink and Runnel promise, and partitions that move."""

import pytest
from world import World

from rink.core import effects as do
from rink.core.placement import Placement

ROLES = [f"role-{index}" for index in range(200)]
EIGHT = [f"orders/{index}" for index in range(8)]
RANK = Placement().rank


class Fleet(World):
    """A world that counts how often each role changes hands."""

    def __init__(self, roles, **settings):
        super().__init__()
        self.roles, self.settings = roles, settings
        self.at, self.moves, self.redistributions = {}, dict.fromkeys(roles, 0), 0

    def start(self, *names):
        for name in names:
            self.add(name, **self.settings)

    def go_on(self, seconds=0.1):
        self.sleep(seconds)
        now = self.holders(self.roles)
        for role, name in now.items():
            self.moves[role] += self.at.get(role, name) != name
        moved = any(self.at.get(role, name) != name for role, name in now.items())
        self.redistributions += moved
        self.at |= now
        return now

    def started(self, *names):
        """A settled group of these members, in these ranks."""
        self.start(*names)
        self.sleep(70.0)
        assert self.ranks == list(names)
        self.go_on()
        assert self.at.keys() == set(self.roles)
        return self


def counts(holders):
    names = sorted(set(holders.values()))
    return {name: sum(holder == name for holder in holders.values()) for name in names}


# ── Go Rink ──────────────────────────────────────────────────────────────────────────────────


def test_joins_are_sticky():
    """Move roles only after the rebalance delay, and only to the newcomer."""
    fleet = Fleet(ROLES).started("a", "b")
    fleet.sleep(100.0)
    fleet.start("c")
    fleet.go_on(59.0)
    assert not any(fleet.moves.values())
    before = dict(fleet.at)
    after = fleet.go_on(2.0)
    assert fleet.ranks == ["a", "b", "c"]
    assert {after[role] for role in ROLES if after[role] != before[role]} == {"c"}


def test_waiting_member_takes_a_leavers_rank_at_once():
    fleet = Fleet(ROLES).started("a", "b")
    fleet.sleep(100.0)
    fleet.start("c")
    b = fleet.members["b"]
    fleet.leave("b")
    after = fleet.go_on(0.01)
    assert fleet.ranks == ["a", "c"]
    assert b.left
    assert all(fleet.moves[role] == (RANK(role, "jump", 2) == 1) for role in ROLES)
    assert after.keys() == set(ROLES)


def test_waiting_member_takes_a_crashed_ones_rank_when_its_lease_ends():
    fleet = Fleet(ROLES).started("a", "b")
    fleet.sleep(100.0)
    fleet.start("c")
    fleet.expire(fleet.kill("a"))
    assert fleet.ranks == ["c", "b"]
    assert fleet.go_on(0.01).keys() == set(ROLES)


def test_without_a_waiting_member_the_group_shrinks_at_once():
    fleet = Fleet(ROLES).started("a", "b", "c")
    fleet.expire(fleet.kill("a"))
    assert fleet.ranks == ["c", "b"]
    assert fleet.go_on(0.01).keys() == set(ROLES)


def test_only_roles_of_moved_ranks_move():
    """Let the last rank leave; the roles that jump keeps in place go on."""
    fleet = Fleet(ROLES).started("a", "b", "c")
    before = dict(fleet.at)
    fleet.leave("c")
    after = fleet.go_on()
    assert all(after[role] == name for role, name in before.items() if name != "c")
    assert not fleet.members["a"].lost
    assert not fleet.members["b"].lost


def test_surge_deploy_moves_each_role_once():
    old, new = "abcde", "vwxyz"
    fleet = Fleet(ROLES).started(*old)
    versions = len(fleet.etcd.versions)
    fleet.sleep(200.0)
    for leaver, newcomer in zip(old, new, strict=True):
        fleet.start(newcomer)
        fleet.go_on(20.0)
        fleet.leave(leaver)
        fleet.go_on(5.0)
    assert fleet.ranks == list(new)
    assert set(fleet.moves.values()) == {1}
    assert fleet.redistributions == 5
    assert len(fleet.etcd.versions) == versions + 5


def test_role_is_any_string_and_two_names_never_wait_for_each_other():
    """`BTC` held for ever keeps nobody from `BTC/ETH`."""
    fleet = Fleet(["BTC", "BTC/ETH", "..", "a b", "%2F", "日本", "x" * 1000])
    fleet.start("a/b", "a")
    fleet.sleep(70.0)
    assert fleet.holders(fleet.roles).keys() == set(fleet.roles)
    waits = {role: [fleet.want(name, role) for name in fleet.ranks] for role in fleet.roles}
    assert all(sum(bool(wait.hold) for wait in each) == 1 for each in waits.values())


def test_roles_are_taken_without_asking_etcd():
    fleet = Fleet(ROLES).started("a", "b")
    before = fleet.etcd.revision
    fleet.holders([f"new-{index}" for index in range(500)])
    fleet.run()
    assert fleet.etcd.revision == before


def test_one_member_coordinates_and_its_end_moves_no_other_members_role():
    fleet = Fleet(ROLES).started("a", "b", "c")
    fleet.start("d")
    before = dict(fleet.at)
    fleet.leave("a")
    after = fleet.go_on()
    assert [name for name, member in fleet.members.items() if member.node.coordinates] == ["b"]
    assert all(after[role] == name for role, name in before.items() if name != "a")


# ── what Go Rink says it lacks ───────────────────────────────────────────────────────────────


def test_pod_that_restarts_within_the_leave_delay_moves_nothing():
    fleet = Fleet(ROLES, leave_delay=30.0).started("a", "b", "c")
    versions = len(fleet.etcd.versions)
    dead = fleet.kill("b")
    fleet.start("b")
    assert not fleet.members["b"].joined
    fleet.sleep(50.0)
    fleet.expire(dead)
    assert fleet.members["b"].joined
    assert fleet.go_on().keys() == set(ROLES)
    assert not any(fleet.moves.values())
    assert len(fleet.etcd.versions) == versions


def test_planned_restart_that_keeps_its_rank_moves_nothing():
    fleet = Fleet(ROLES, leave_delay=30.0).started("a", "b", "c")
    versions = len(fleet.etcd.versions)
    for name in "abc":
        fleet.leave(name, keep_rank=True)
        fleet.sleep(10.0)
        fleet.start(name)
    assert fleet.go_on().keys() == set(ROLES)
    assert not any(fleet.moves.values())
    assert len(fleet.etcd.versions) == versions


def test_surge_deploy_after_a_full_restart_moves_each_role_once():
    """Take members that are younger than the newest version for the old group."""
    fleet = Fleet(ROLES, leave_delay=30.0).started("a", "b", "c")
    for name in "abc":
        fleet.leave(name, keep_rank=True)
        fleet.start(name)
    fleet.sleep(300.0)
    fleet.go_on()
    for leaver, newcomer in zip("abc", "xyz", strict=True):
        fleet.start(newcomer)
        fleet.go_on(20.0)
        fleet.leave(leaver)
        fleet.go_on(5.0)
    assert fleet.ranks == ["x", "y", "z"]
    assert set(fleet.moves.values()) == {1}


def test_five_members_started_together_share_the_work_within_seconds():
    fleet = Fleet(ROLES)
    fleet.start(*"abcde")
    holders = fleet.go_on(3.0)
    assert fleet.ranks == list("abcde")
    assert len(fleet.etcd.versions) == 2
    assert min(counts(holders).values()) > 20


def test_group_restarted_as_a_whole_shares_the_work_within_seconds():
    fleet = Fleet(ROLES, leave_delay=5.0).started("a", "b", "c")
    for name in "abc":
        fleet.expire(fleet.kill(name))
    fleet.sleep(600.0)
    fleet.start(*"vwxyz")
    holders = fleet.go_on(8.0)
    assert set(fleet.ranks) == set("vwxyz")
    assert holders.keys() == set(ROLES)


def test_staggered_growth_adds_one_member_per_version_and_settles():
    fleet = Fleet(ROLES, stagger=1, rebalance_delay=0.0).started("a")
    fleet.hold("a", "events")
    fleet.start("b", "c", "d")
    fleet.let("a")
    fleet.go_on(1.0)
    assert fleet.ranks == ["a", "b", "c", "d"]
    sizes = [len(e.version.ranks) for e in fleet.members["a"].made(do.Proclaim)]
    assert sizes == [1, 2, 3, 4]


def test_staggered_shrink_drops_one_member_per_version():
    fleet = Fleet(ROLES, stagger=1).started("a", "b", "c", "d")
    fleet.members["b"].lets_go = False
    held = fleet.members["b"].node.table.held
    for name in "bcd":
        fleet.leave(name)
    fleet.sleep(5.0)
    assert len(fleet.ranks) == 3
    assert "b" not in fleet.ranks
    assert fleet.members["c"].node.table.held
    assert not held
    fleet.let_go("b")
    fleet.sleep(1.0)
    assert list(fleet.members) == ["a"]
    assert fleet.go_on().keys() == set(ROLES)


def test_dead_member_does_not_stop_a_staggered_group():
    fleet = Fleet(ROLES, stagger=1, rebalance_delay=0.0).started("a", "b", "c")
    fleet.members["c"].lets_go = False
    fleet.holders(ROLES)
    fleet.leave("c")
    fleet.start("d")
    fleet.expire(fleet.kill("b"))
    fleet.sleep(1.0)
    assert "b" not in fleet.ranks
    assert "d" in fleet.ranks


def test_tokens_rise_from_holder_to_holder():
    fleet = Fleet(["x"], rebalance_delay=0.0, leave_delay=0.0)
    fleet.start("a")
    tokens = [fleet.get("a", "x").token]
    for leaver, newcomer in ["ab", "bc", "cd"]:
        fleet.start(newcomer)
        fleet.leave(leaver)
        fleet.sleep(0.1)
        tokens.append(fleet.get(newcomer, "x").token)
    assert tokens == sorted(set(tokens))


# ── Runnel ───────────────────────────────────────────────────────────────────────────────────


def test_second_worker_takes_four_partitions_and_four_never_stop():
    fleet = Fleet(EIGHT, schemes=("balanced:8",), rebalance_delay=0.0)
    fleet.start("one")
    assert counts(fleet.go_on()) == {"one": 8}
    fleet.start("two")
    assert counts(fleet.go_on()) == {"one": 4, "two": 4}
    one = fleet.members["one"]
    assert len(one.lost) == 4
    kept = {role for role, name in fleet.at.items() if name == "one"}
    assert not kept & set(one.lost)
    assert all(one.node.table.held[role].lost_at is None for role in kept)


def test_leaving_workers_partitions_move_and_the_others_never_stop():
    fleet = Fleet(EIGHT, schemes=("balanced:8",), rebalance_delay=0.0)
    fleet.start("one", "two")
    fleet.go_on()
    fleet.leave("one")
    assert counts(fleet.go_on()) == {"two": 8}
    assert not fleet.members["two"].lost


def test_worker_acquires_a_partition_only_after_its_release():
    fleet = Fleet(EIGHT, schemes=("balanced:8",), rebalance_delay=0.0)
    fleet.start("one")
    fleet.go_on()
    one = fleet.members["one"]
    one.lets_go = False
    fleet.start("two")
    waits = [fleet.want("two", role) for role in EIGHT]
    fleet.sleep(5.0)
    assert not any(wait.hold for wait in waits)
    fleet.let_go("one")
    assert sum(bool(wait.hold) for wait in waits) == 4


# ── partitions that move ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("partitions", "clients", "expected"),
    [
        (2, ["c1", "c2", "c3"], {"c1": 1, "c2": 1}),
        (3, ["c1", "c2"], {"c1": 2, "c2": 1}),
    ],
    ids=["more clients than partitions", "more partitions than clients"],
)
def test_every_partition_has_one_client_and_clients_too_many_are_idle(
    partitions, clients, expected
):
    roles = [f"p/{index}" for index in range(partitions)]
    fleet = Fleet(roles, schemes=(f"balanced:{partitions}",), rebalance_delay=0.0)
    fleet.start(*clients)
    assert counts(fleet.go_on()) == expected
    assert fleet.ranks == clients


def test_idle_client_takes_over_when_another_leaves():
    fleet = Fleet(["p/0", "p/1"], schemes=("balanced:2",), rebalance_delay=0.0)
    fleet.start("c1", "c2", "c3")
    assert fleet.go_on() == {"p/0": "c1", "p/1": "c2"}
    fleet.leave("c1")
    assert fleet.go_on() == {"p/0": "c3", "p/1": "c2"}
    assert not fleet.members["c2"].lost
