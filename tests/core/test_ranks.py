"""Test that every small history keeps the invariants of ranking.

Each may be taken up anywhere by a new coordinator.
"""

import itertools
import math

import pytest
from attrs import evolve

from rink.core.member_record import Phase
from rink.core.ranks import STARTED, Candidate, RankSettings, Situation, plan

ACTIVE, OFFERING, LEAVING = Phase
NAMES = "abcde"
DELAY = 60.0


class Group:
    """A group as one coordinator ranks it, with nothing but `plan` at work."""

    def __init__(self, settings, ranked, waiting=0):
        self.settings = settings
        self.now, self.revision = 0.0, 0
        self.members, self.gone_since, self.emptied_since, self.offering_since = {}, {}, {}, {}
        self.ranks, self.log = (), []
        self.settled = True
        for name in NAMES[:ranked]:
            self.join(name)
        self.ranks = tuple(NAMES[:ranked])
        self.now = 1000.0
        for name in NAMES[ranked : ranked + waiting]:
            self.join(name)

    # ── what happens ─────────────────────────────────────────────────────────────────────────

    def join(self, name):
        self.revision += 1
        self.members[name] = Candidate(name, self.revision, self.now, DELAY)
        self.gone_since.pop(name, None)
        self.note_emptied()

    def leave(self, name):
        offers = self.settings.handover_wait and name in self.ranks
        self.members[name] = evolve(self.members[name], phase=OFFERING if offers else LEAVING)
        if offers:
            self.offering_since[name] = self.now
        self.note_emptied()

    def crash(self, name):
        del self.members[name]
        if name in self.ranks:
            self.gone_since[name] = self.now
        self.note_emptied()

    def note_emptied(self):
        active = {name for name, member in self.members.items() if member.phase is ACTIVE}
        if not active & set(self.ranks):
            self.emptied_since = dict.fromkeys(self.ranks, self.now)
        absent = set(self.ranks) - active
        self.emptied_since = {n: at for n, at in self.emptied_since.items() if n in absent}

    def happenings(self):
        """Every next thing that can happen to this group."""
        fresh = [n for n in NAMES if n not in self.members and n not in self.ranks][:1]
        back = [n for n in self.ranks if n not in self.members]
        for name in fresh + back:
            yield "join", name
        for name, member in list(self.members.items()):
            yield "crash", name
            if member.phase is ACTIVE:
                yield "leave", name
        for seconds in (10.0, 31.0, 61.0):
            yield "pass", seconds

    def happen(self, what, value):
        if what == "pass":
            self.now += value
            for name, member in self.members.items():
                over_at = self.offering_since.get(name, 0.0) + self.settings.handover_wait
                if member.phase is OFFERING and self.now >= over_at:
                    self.members[name] = evolve(member, phase=LEAVING)
        else:
            getattr(self, what)(value)

    # ── what the coordinator does ─────────────────────────────────────────────────────────────

    def plan(self):
        return plan(
            Situation(
                ranks=self.ranks,
                members=list(self.members.values()),
                gone_since=self.gone_since,
                offering_since=self.offering_since,
                emptied_since=self.emptied_since,
                settled=self.settled,
            ),
            self.now,
            self.settings,
        )

    def proclaim(self, check=True):
        """Plan, check and proclaim; return False if the plan changes nothing."""
        made = self.plan()
        if check:
            check_plan(self, made)
        changed = made.ranks != self.ranks
        self.ranks = made.ranks
        for name in self.gone_since.keys() - set(self.ranks):
            del self.gone_since[name]
        self.note_emptied()
        for name, member in list(self.members.items()):
            if member.phase is not ACTIVE and name not in self.ranks:
                del self.members[name]  # it has let go, and is gone
        self.log.append(self.ranks)
        return changed

    def settle(self):
        """Proclaim over time until exactly the live members are ranked."""
        for _ in range(40):
            if not self.proclaim():
                self.happen("pass", 31.0)
        alive = {name for name, member in self.members.items() if member.is_usable}
        if alive:
            assert set(self.ranks) == alive

    def copy(self):
        twin = Group(self.settings, 0)
        twin.now, twin.revision, twin.ranks = self.now, self.revision, self.ranks
        twin.members, twin.gone_since = dict(self.members), dict(self.gone_since)
        twin.emptied_since, twin.offering_since = self.emptied_since, dict(self.offering_since)
        return twin

    def taken_over(self):
        """The same group as a new coordinator sees it, who has only just come."""
        twin = self.copy()
        twin.members = {n: evolve(m, first_seen=self.now) for n, m in self.members.items()}
        twin.gone_since = {n: self.now for n in self.ranks if n not in self.members}
        twin.emptied_since = {}
        twin.note_emptied()
        return twin


def wakes(made):
    """Return when the ranks change if nothing happens before, or None."""
    return made.upcoming.at if made.upcoming else None


def check_plan(group, made):
    """Check the invariants of any plan."""
    now, before, after, live = group.now, group.ranks, made.ranks, group.members
    usable = {name for name, member in live.items() if member.is_usable}
    assert len(set(after)) == len(after), "a member has two ranks"
    assert bool(made.because) == (after != before), "causes are given if and only if ranks change"
    assert wakes(made) is None or wakes(made) > now, "it would wake for ever"
    assert usable & set(before) <= set(after), "a member that remains has lost its rank"
    for name in usable & set(before):
        if after.index(name) != before.index(name):
            assert before.index(name) >= len(after), "a member moved that did not have to"
            assert after.index(name) < before.index(name)
    for rank, name in enumerate(after):
        if name in usable:
            continue
        reserved = now < group.gone_since.get(name, now) + group.settings.leave_delay
        reserved &= name not in live
        if name in group.emptied_since:
            delay = max(group.settings.leave_delay, group.settings.handover_wait)
            reserved |= now < group.emptied_since[name] + delay
        served = name in live and (group.settings.stagger is not None or live[name].is_offering)
        assert reserved or served or not usable, f"{name} cannot serve"
        assert before.index(name) == rank, f"{name} was moved, and cannot serve"
    stagger = group.settings.stagger
    if stagger is not None and set(before) & set(live):
        allowed = stagger if group.settled else 0
        given_up = {
            n for n in set(before) - set(after) if n in live and live[n].phase is not ACTIVE
        }
        given_up = {n for n in given_up if before.index(n) < len(after)}  # others would move
        assert len(after) - len(before) <= allowed
        assert len(given_up) <= allowed
    for name, member in live.items():
        if member.is_usable and name not in after and stagger is None:
            assert now < member.first_seen + member.rebalance_delay, f"{name} waits too long"
            assert not any(n in live and live[n].is_offering for n in after), f"{name} is kept out"
    dropped = {name for name in set(before) - set(after) if name in live}
    if any(live[name].is_offering for name in dropped) and len(after) < len(before):
        assert len(dropped) > 1 or set(before) - set(live), "an offer made the group shrink"
    assert _again(group, made) == after, "the same plan once more changes the ranks"


def _again(group, made):
    twin = group.copy()
    twin.ranks = made.ranks
    twin.settled = group.settings.stagger is None
    return twin.plan().ranks


SETTINGS = [
    RankSettings(DELAY, leave_delay=leave_delay, handover_wait=handover_wait, stagger=stagger)
    for leave_delay, handover_wait in ((0.0, 0.0), (30.0, 0.0), (0.0, 20.0), (15.0, 20.0))
    for stagger in (None, 1)
]


def histories(group, steps):
    """Walk all histories of so many steps, proclaiming each plan at once."""
    for what, value in list(group.happenings()):
        twin = group.copy()
        twin.happen(what, value)
        twin.proclaim()
        yield twin
        if steps > 1:
            yield from histories(twin, steps - 1)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(("ranked", "waiting"), [(0, 2), (2, 0), (2, 2), (4, 0)])
def test_every_small_history_keeps_the_invariants(settings, ranked, waiting):
    seen = sum(1 for _ in histories(Group(settings, ranked, waiting), 3))
    assert seen > 200


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(("ranked", "waiting"), [(3, 1), (2, 2)])
def test_every_history_settles_and_from_every_prefix_of_it_as_well(settings, ranked, waiting):
    """Settle the group by a new coordinator that knows nothing of the past."""
    for group in histories(Group(settings, ranked, waiting), 2):
        whole = group.copy()
        whole.settle()
        for ranks in dict.fromkeys(whole.log[:-1]):
            part = group.copy()
            part.ranks = ranks
            part = part.taken_over()
            part.settle()
            assert set(part.ranks) == set(whole.ranks)


@pytest.mark.parametrize("stagger", [1, 2, None])
def test_nothing_planned_moves_while_the_last_version_is_not_settled(stagger):
    for settings in (
        RankSettings(DELAY, stagger=stagger),
        RankSettings(DELAY, 2.0, 30.0, 0.0, stagger),
        RankSettings(DELAY, 2.0, 0.0, 20.0, stagger),
    ):
        for group in histories(Group(settings, 3, 1), 2):
            group.settled = False
            check_plan(group, group.plan())


def test_plan_is_the_same_whatever_the_order_of_the_records():
    for group in histories(Group(RankSettings(DELAY, leave_delay=30.0), 2, 2), 1):
        plans = set()
        for members in itertools.permutations(group.members.values()):
            twin = group.copy()
            twin.members = {member.name: member for member in members}
            made = twin.plan()
            plans.add((made.ranks, made.because, wakes(made)))
        assert len(plans) == 1


# ── rule by rule ─────────────────────────────────────────────────────────────────────────────


def make(ranks, *members, now=1000.0, settings=None, **situation):
    return plan(Situation(tuple(ranks), members, **situation), now, settings or RankSettings())


def told(made):
    """Return a plan without its texts, which `test_upcoming` checks."""
    return made.ranks, made.because, wakes(made)


def planned(ranks, because=(), wake_at=None):
    return ranks, because, wake_at


def live(name, create=1, seen=0.0, **how):
    return Candidate(name, create, seen, **how)


def test_empty_group_ranks_every_member_at_once_by_record_age():
    made = make("", live("b", 2, 1000.0), live("a", 3, 1000.0), live("c", 1, 1000.0))
    assert told(made) == planned(("c", "b", "a"), (STARTED, "joined c", "joined b", "joined a"))


@pytest.mark.parametrize("newcomers", range(6))
def test_ranks_go_in_turn_gone_then_leaving_then_offering(newcomers):
    """Ranks a to f: offering, leaving, gone, active, offering, gone."""
    members = [
        live("a", phase=OFFERING),
        live("b", phase=LEAVING),
        live("d"),
        live("e", phase=OFFERING),
    ]
    waiting = [live(f"n{number}", 9 + number, 999.0) for number in range(newcomers)]
    made = make("abcdef", *members, *waiting, settings=RankSettings(leave_delay=30.0))
    replaced = [one.split()[1] for one in made.because if one.startswith("replaced")]
    assert replaced == ["c", "f", "b", "a", "e"][:newcomers]


def test_longest_offer_is_taken_first():
    members = [live(name, phase=OFFERING) for name in "abc"]
    since = {"a": 990.0, "b": 970.0, "c": 980.0}
    for newcomers, taken in enumerate(("", "b", "bc", "abc")):
        waiting = [live(f"n{number}", 9 + number, 999.0) for number in range(newcomers)]
        made = make("abc", *members, *waiting, offering_since=since)
        assert set("abc") - set(made.ranks) == set(taken)


def test_offering_member_keeps_its_rank_while_nobody_waits():
    made = make("abc", live("a"), live("b", phase=OFFERING), live("c", phase=OFFERING))
    assert told(made) == planned(("a", "b", "c"))


def test_offering_member_never_moves_and_goes_with_a_rank_below_it():
    made = make("abc", live("b"), live("c", phase=OFFERING))
    assert told(made) == planned(
        ("b",), ("expired a", "gave up c: the group shrinks below its rank")
    )
    made = make("acb", live("b"), live("c", phase=OFFERING))
    assert told(made) == planned(("b", "c"), ("expired a",))


def test_offering_member_that_cannot_follow_serves_nobody():
    made = make("ab", live("a"), live("b", phase=OFFERING, can_follow=False))
    assert told(made) == planned(("a",), ("cannot follow b",))
    members = live("a"), live("b", phase=OFFERING, can_follow=False), live("n", 9)
    assert make("ab", *members).because == ("replaced b by n: cannot follow the scheme",)


def test_ranks_stay_where_every_member_offers():
    made = make("abc", live("a", phase=OFFERING), live("b", phase=OFFERING), gone_since={"c": 0.0})
    assert told(made) == planned(("a", "b", "c"))


def test_offers_are_taken_one_by_one_with_stagger():
    settings = RankSettings(stagger=1)
    members = live("a", phase=OFFERING), live("b", phase=OFFERING)
    members += live("n", 8, 999.0), live("m", 9, 999.0)
    made = make("ab", *members, settings=settings)
    assert told(made)[:2] == (("n", "b"), ("replaced a by n: offering",))
    made = make("nb", *members[1:], settings=settings, settled=False)
    assert told(made)[:2] == (("n", "b"), ())
    assert made.upcoming.at is None
    assert made.upcoming.because.startswith("'b', which leaves, waits until the last version")


@pytest.mark.parametrize("phase", [OFFERING, LEAVING])
def test_newcomer_whose_turn_is_next_does_not_make_the_group_grow(phase):
    """The rank of b goes to the second newcomer with the next version."""
    members = live("a", phase=phase), live("b", phase=phase)
    members += live("n", 8, 0.0), live("m", 9, 0.0)
    made = make("ab", *members, settings=RankSettings(stagger=1))
    assert told(made)[:2] == (("n", "b"), (f"replaced a by n: {phase.value}",))
    made = make("ab", *members, live("o", 10, 0.0), settings=RankSettings(stagger=1))
    assert made.ranks == ("n", "b", "o")


@pytest.mark.parametrize(
    ("leave_delay", "handover_wait", "until"), [(0.0, 20.0, 1015.0), (30.0, 20.0, 1025.0)]
)
def test_emptied_ranks_stay_for_the_larger_of_both_delays(leave_delay, handover_wait, until):
    """End the members by plan, one after the other, then start a new one."""
    settings = RankSettings(leave_delay=leave_delay, handover_wait=handover_wait)
    situation = {"gone_since": dict.fromkeys("bc", -math.inf), "settings": settings}
    since = dict.fromkeys("bc", 995.0)
    made = make("nbc", live("n", 9), emptied_since=since, **situation)
    assert told(made) == planned(("n", "b", "c"), (), until)
    made = make("nbc", live("n", 9), emptied_since=since, now=until, **situation)
    assert told(made) == planned(("n",), ("expired b", "expired c"))
    assert make("nbc", live("n", 9), **situation).ranks == ("n",)
    leaver = live("b", phase=LEAVING)  # it lets go, or was killed while it did
    made = make("nbc", live("n", 9), leaver, emptied_since=since, **situation)
    assert told(made) == planned(("n", "b", "c"), (), until)


def test_leavers_rank_goes_to_who_waits_longest_and_the_lowest_first():
    made = make(
        "abc",
        live("a", phase=LEAVING),
        live("b"),
        live("c", can_follow=False),
        live("young", 9, 999.0),
        live("old", 8, 999.0),
    )
    assert made.ranks == ("young", "b", "old")
    assert made.because == (
        "replaced c by old: cannot follow the scheme",
        "replaced a by young: leaving",
    )


def test_who_cannot_follow_the_scheme_is_not_ranked():
    made = make("a", live("a"), live("b", can_follow=False))
    assert told(made) == planned(("a",))
    assert told(make("", live("b", can_follow=False))) == planned(())


def test_rank_of_a_gone_member_is_reserved_and_any_newcomer_takes_it():
    settings = RankSettings(leave_delay=30.0)
    gone = {"b": 990.0}
    assert told(make("ab", live("a"), gone_since=gone, settings=settings)) == planned(
        ("a", "b"), (), 1020.0
    )
    made = make("ab", live("a"), live("c", 5, 1000.0), gone_since=gone, settings=settings)
    assert told(made) == planned(("a", "c"), ("replaced b by c: gone",))
    made = make("ab", live("a"), gone_since=gone, settings=settings, now=1020.0)
    assert told(made) == planned(("a",), ("expired b",))


def test_leavers_rank_is_not_reserved():
    settings = RankSettings(leave_delay=30.0)
    made = make("ab", live("a"), live("b", phase=LEAVING), settings=settings)
    assert told(made) == planned(("a",), ("left b",))


def test_shrinking_group_moves_the_members_above_into_the_holes():
    made = make("abcde", live("b"), live("c"), live("e"))
    assert told(made) == planned(("e", "b", "c"), ("expired a", "expired d"))


def test_leaving_leader_moves_once_while_another_leaves():
    """Keep a leader from moving to a member that leaves as well."""
    settings = RankSettings(stagger=1)
    members = live("a", phase=LEAVING), live("b"), live("c", phase=LEAVING)
    made = make("abc", *members, settings=settings)
    assert told(made)[:2] == (("a", "b"), ("left c",))
    made = make(made.ranks, *members[:2], settings=settings)
    assert told(made)[:2] == (("b",), ("left a",))


@pytest.mark.parametrize("stagger", [1, 2, 3])
def test_leaving_members_never_move_and_the_others_once_at_most(stagger):
    """Try each order of three leaving and two staying members."""
    settings = RankSettings(stagger=stagger)
    members = [live(name, phase=LEAVING if name in "abc" else ACTIVE) for name in "abcde"]
    for order in itertools.permutations("abcde"):
        ranks, moves = order, []
        while (made := make(ranks, *members, settings=settings)).because:
            moves += [n for i, n in enumerate(made.ranks) if ranks[i] != n]
            assert len(ranks) - len(made.ranks) <= stagger
            ranks = made.ranks
            members = [member for member in members if member.name in ranks]
        members = [live(name, phase=LEAVING if name in "abc" else ACTIVE) for name in "abcde"]
        assert set(ranks) == {"d", "e"}
        assert not set(moves) & set("abc")
        assert len(moves) == sum(order.index(name) > 1 for name in "de")


def closed(ranks, dropped):
    """Return what the rule drops with these, and how many members move."""
    dropped = set(dropped)
    while True:
        size = len(ranks) - len(dropped)
        movers = {name for name in ranks[size:] if name not in dropped and name[0] in "LR"}
        if not movers:
            return len(dropped), sum(name not in dropped for name in ranks[size:])
        dropped |= movers


@pytest.mark.parametrize("size", range(1, 6))
def test_turns_drop_the_fewest_ranks_and_move_the_fewest_members(size):
    """Try every row of members and every stagger.

    The members are active (A), leaving (L), reserved (R) or expired (E).
    """
    for kinds in itertools.product("ALRE", repeat=size):
        ranks = [f"{kind}{number}" for number, kind in enumerate(kinds)]
        leaving = [name for name in ranks if name[0] == "L"]
        expired = {name for name in ranks if name[0] == "E"}
        members = [
            live(name, phase=LEAVING if name[0] == "L" else ACTIVE)
            for name in ranks
            if name[0] in "AL"
        ]
        for stagger in range(1, len(leaving) if "A" in kinds else 0):
            made = make(
                ranks,
                *members,
                settings=RankSettings(leave_delay=30.0, stagger=stagger),
                gone_since={name: 990.0 if name[0] == "R" else 0.0 for name in ranks},
            )
            moved = sum(ranks[rank] != name for rank, name in enumerate(made.ranks))
            best = min(
                closed(ranks, expired | set(turns))
                for turns in itertools.combinations(leaving, stagger)
            )
            assert (len(ranks) - len(made.ranks), moved) == best, (ranks, stagger)


def test_leaver_is_not_replaced_before_the_last_version_has_settled():
    settings = RankSettings(stagger=1)
    members = live("a", phase=LEAVING), live("b"), live("new", 9, 999.0)
    made = make("ab", *members, settings=settings, settled=False)
    assert told(made)[:2] == (("a", "b"), ())


def test_lowest_leaver_has_the_first_turn_where_somebody_waits():
    settings = RankSettings(stagger=1)
    members = live("a", phase=LEAVING), live("b"), live("c", phase=LEAVING), live("new", 9, 999.0)
    made = make("abc", *members, settings=settings)
    assert told(made)[:2] == (("new", "b", "c"), ("replaced a by new: leaving",))


@pytest.mark.parametrize("settled", [True, False])
def test_leaving_member_above_a_dead_rank_gives_up_instead_of_moving(settled):
    settings = RankSettings(stagger=1)
    members = live("b"), live("c", phase=LEAVING), live("d", phase=LEAVING)
    made = make("abcd", *members, settings=settings, settled=settled)
    because = {"expired a", "left c", "gave up d: the group shrinks below its rank"}
    if not settled:
        because = {"expired a", *(f"gave up {n}: the group shrinks below its rank" for n in "cd")}
    assert (made.ranks, set(made.because)) == (("b",), because)


def test_leaver_below_the_new_size_waits_its_turn_at_its_rank():
    settings = RankSettings(stagger=1)
    members = live("a", phase=LEAVING), live("b"), live("c", phase=LEAVING)
    made = make("abxc", *members, settings=settings)
    assert (made.ranks, set(made.because)) == (("a", "b"), {"expired x", "left c"})
    made = make("axb", *members[:2], settings=settings, settled=False)
    assert told(made)[:2] == (("a", "b"), ("expired x",))


def test_rank_that_is_reserved_for_a_gone_member_is_never_moved():
    """Keep a leaver's roles from moving to a member that is gone."""
    settings = RankSettings(leave_delay=30.0)
    members = live("a", phase=LEAVING), live("b")
    made = make("abc", *members, gone_since={"c": 990.0}, settings=settings)
    assert told(made) == planned(
        ("b",),
        ("left a", "gave up c: the group shrinks below its rank"),
    )
    made = make("bca", *members, gone_since={"c": 990.0}, settings=settings)
    assert told(made) == planned(("b", "c"), ("left a",), 1020.0)


def test_whoever_leaves_last_serves_until_it_has_gone():
    made = make("ab", live("a", phase=LEAVING), live("b", phase=LEAVING))
    assert told(made) == planned(("a", "b"))


def test_growth_waits_for_the_newcomers_own_delay():
    members = live("a"), live("b", 2, 990.0, rebalance_delay=60.0)
    assert told(make("a", *members)) == planned(("a",), (), 1050.0)
    assert told(make("a", *members, now=1050.0)) == planned(("a", "b"), ("joined b",))


def test_whose_delay_ends_within_a_tenth_of_it_comes_along():
    members = live("a"), live("b", 2, 0.0), live("c", 3, 5.9), live("d", 4, 6.1)
    made = make("a", *members, now=60.0)
    assert told(made) == planned(("a", "b", "c"), ("joined b", "joined c"), 66.1)


def test_after_a_start_newcomers_wait_only_the_initial_delay():
    members = live("a"), live("b", 2, 1000.0)
    assert wakes(make("a", *members, started_at=999.0)) == 1002.0
    assert make("a", *members, started_at=999.0, now=1002.0).ranks == ("a", "b")
    assert wakes(make("a", *members, started_at=940.0)) == 1060.0


def test_members_shorter_delay_holds_after_a_start_too():
    members = live("a"), live("b", 2, 1000.0, rebalance_delay=0.5)
    assert wakes(make("a", *members, started_at=999.0)) == 1000.5


def test_members_that_are_back_under_their_old_ranks_are_no_empty_group():
    """Keep a full restart from ranking newcomers at once for ever."""
    members = live("a", 7), live("b", 8), live("c", 9, 1000.0)
    assert told(make("ab", *members, was_empty=True)) == planned(("a", "b"), (), 1060.0)


def test_group_that_was_empty_says_so_with_its_next_version():
    made = make("ab", live("a", 7), was_empty=True)
    assert told(made) == planned(("a",), (STARTED, "expired b"))


def test_stagger_bounds_how_many_join_and_leave_with_one_version():
    settings = RankSettings(0.0, stagger=1)
    newcomers = [live(name, 5 + index, 0.0) for index, name in enumerate("cde")]
    made = make("ab", live("a"), live("b"), *newcomers, settings=settings)
    assert told(made) == planned(("a", "b", "c"), ("joined c",))
    assert make("ab", live("a"), live("b"), *newcomers, settings=settings, settled=False).ranks == (
        "a",
        "b",
    )
    leavers = live("a", phase=LEAVING), live("b", phase=LEAVING), live("c")
    assert make("abc", *leavers, settings=settings).ranks == ("c", "b")
    assert told(make("abc", *leavers, settings=settings, settled=False)) == planned(("a", "b", "c"))


def test_stagger_never_keeps_back_the_ranks_of_the_dead():
    settings = RankSettings(stagger=1)
    made = make("abcd", live("d"), live("e", 9, 1000.0), settings=settings, settled=False)
    assert made.ranks == ("e", "d")
