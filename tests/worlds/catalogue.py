"""List the worlds, with their purpose and size.

Each world says whether it is explored by default.
"""

from __future__ import annotations

from spec import Spec

from rink.core.ranks import RankSettings
from rink.core.schemes import rank_of
from rink.core.values import Request, Wish

AT_ONCE = {"ranking": RankSettings(rebalance_delay=0.0, initial_delay=0.0)}
OFFERS = {
    "ranking": RankSettings(rebalance_delay=20.0, initial_delay=20.0, handover_wait=4.0),
    "leave_timeout": 30.0,
}
"""A newcomer is ranked in place of a member that offers; without one, only in the calm."""

LISTS_NOTHING = {"draining_limit_bytes": 0}

A, B, AB, BA = ("a",), ("b",), ("a", "b"), ("b", "a")


def _role(rank: int) -> str:
    """Return a role that a group of two gives to one rank."""
    return next(name for name in "pqrstuvw" if rank_of(name, 2) == rank)


TWO = (_role(0), _role(1))

TO_C = next(name for name in "pqrstuvw" if (rank_of(name, 2), rank_of(name, 3)) == (0, 2))
"""A role that goes from a, the first of two, to c, the third of three."""

REPLACED = {"settings": {**AT_ONCE, "ttl": 14, "margin": 1.4}, "far_s": 5.0}
"""After a change of history nothing is granted for a TTL. It ends first in the calm."""

NO_LEASE, UNKNOWN = 0, 99
"""None, and one that etcd has never granted."""

PIN = Request(Wish.PIN, role="x", member="a")
UNPIN = Request(Wish.UNPIN, role="x")
RAISE = Request(Wish.TOKEN_BASE, token_base=1000)

BY_DEFAULT = [
    Spec("there and back", "ownership goes to b and back to a, user code lets go when it likes",
         script=(B, A)),
    Spec("an answer is lost", "one transaction is carried out and not answered",
         script=(B,), purse={"lose answer": 1}),
    Spec("several shares stay behind", "the draining list may hold nothing; two roles, two shares",
         roles=TWO, begin=AB, script=(BA, B), settings=LISTS_NOTHING, clings=A),
    Spec("a deadline is noticed", "the lease may live on, or end",
         script=(B,), purse={"expire": 1}, victims=A),
    Spec("a lease ends early", "etcd ends it without telling; a rejoins, user code may still run",
         script=(B,), purse={"end lease": 1}, victims=A),
    Spec("a record is deleted", "by an operator, under a live lease",
         script=(B,), purse={"delete": 1}, victims=A),
    Spec("a crash and a restart", "the name is taken until the lease ends",
         script=(B,), purse={"kill": 1, "restart": 1}, victims=A),
    Spec("get_role", "callers compute without the lock, and take, and release",
         script=(B,), purse={"look": 2}),
    Spec("get_role between two halves", "anything may happen between the two halves of a step",
         script=(B,), purse={"look": 1}, victims=A, halves=True),
    Spec("a role is passed on", "to another user in the same member, with a greater token",
         script=(B,), purse={"pass on": 1}, victims=A),
    Spec("two roles swap", "each goes to the other member", roles=TWO, begin=AB, script=(BA,)),
    Spec("somebody joins", "real coordinators; b comes to a", versions=3, settings=AT_ONCE,
         late_joiners=B, purse={"lose answer": 1}),
    Spec("the coordinator dies", "real coordinators; what it proclaimed last may come late",
         versions=4, settings=AT_ONCE, late_joiners=B, purse={"kill": 1}, victims=A),
    Spec("the coordinator dies between two halves",
         "real coordinators; also before it proclaims what it has to", versions=3,
         settings=AT_ONCE, late_joiners=B, purse={"kill": 1}, victims=A, halves=True),
    Spec("the coordinator leaves", "real coordinators; it hands over and goes", versions=4,
         settings=AT_ONCE, purse={"leave": 1}, victims=A),
    Spec("an offer is taken", "a leaves, and is told to leave now", script=(B,), settings=OFFERS,
         purse={"leave": 1, "leave now": 1}, victims=A),
    Spec("an offer, and nobody joins", "real coordinators; its time passes at any moment",
         versions=4, settings=OFFERS, purse={"leave": 1, "leave now": 1, "lose answer": 1},
         victims=A),
    Spec("an offer, and b joins", "real coordinators; before, while or after a offers its rank",
         versions=2, settings=OFFERS, late_joiners=B, purse={"leave": 1, "leave now": 1},
         victims=A),
    Spec("one of two offers, and c joins", "real coordinators", members=("a", "b", "c"),
         late_joiners=("c",), versions=3, settings=OFFERS, purse={"leave": 1}, victims=AB),
    Spec("a leaver clings",
         "real coordinators; its user code never lets go, and leave_timeout passes",
         roles=TWO[:1], versions=4, settings=AT_ONCE | {"leave_timeout": 4.0}, purse={"leave": 1},
         victims=A, clings=A),
    Spec("the oldest clings, and another joins", "the same; b joins meanwhile", roles=TWO[:1],
         versions=2, settings=AT_ONCE | {"leave_timeout": 4.0}, purse={"leave": 1}, late_joiners=B,
         victims=A, clings=A),
    Spec("the oldest of three clings", "the same; b goes on and c joins meanwhile", roles=TWO[:1],
         members=("a", "b", "c"), late_joiners=("c",), versions=3,
         settings=AT_ONCE | {"leave_timeout": 4.0}, purse={"leave": 1}, victims=A, clings=A),
    Spec("the coordinator is cut off", "real coordinators; its lease ends and it does not know",
         versions=4, settings=AT_ONCE, purse={"end lease": 1}, victims=A),
    Spec("a deadline and a late request", "alone; a request is carried out at any later time",
         members=A, script=(B, A), purse={"expire": 1, "lose request": 1}),
    Spec("two of one name", "two processes; the first is killed, or its lease ends and it rejoins",
         members=("a", "a'"), late_joiners=("a'",), purse={"end lease": 1, "kill": 1}),
    Spec("a name that nobody keeps",
         "alone; a record without a lease is in its way, and removed late",
         members=A, late_joiners=A, remains=(("a", NO_LEASE),), script=(B, A)),
    Spec("a version is deleted", "by an operator, the newest one",
         script=(B,), purse={"unproclaim": 1}),
    Spec("an operator pins a role", "real coordinators; the coordinator dies meanwhile", versions=5,
         settings=AT_ONCE, script=(PIN,), purse={"kill": 1}, victims=A),
    Spec("etcd loses its volume", "b is cut off; the revision is ahead, so no header tells of it",
         begin=B, anew=A, purse={"wipe": 1, "lose answer": 1}, cut_off=B, **REPLACED),
    Spec("etcd is restored, and another joins",
         "real coordinators; from a copy of any time while a joins",
         members=("a", "c"), late_joiners=A, fresh=("c",), cut_off=A, versions=5,
         purse={"restore": 1}, **REPLACED),
]  # fmt: skip

DEEP = [
    # A member alone: its own record against the roles that it works on. It can be put to more than
    # pairs can.
    Spec("four versions, and two faults", "alone", members=A, script=(B, A, B, A),
         purse={"lose answer": 1, "lose request": 1}),
    Spec("a deadline, and two faults", "alone", members=A, script=(B, A),
         purse={"expire": 1, "lose answer": 1, "lose request": 1}),
    Spec("a lease ends, and a request is late", "alone", members=A, script=(B, A),
         purse={"end lease": 1, "lose request": 1}),
    Spec("a record is deleted, and a request is late", "alone", members=A, script=(B, A),
         purse={"delete": 1, "lose request": 1}),
    Spec("shares stay behind, and two faults", "alone", members=A, script=(B, A, B, A, B),
         settings=LISTS_NOTHING, purse={"lose answer": 1, "lose request": 1}),
    # Pairs.
    Spec("a, b, a, b", "four versions", script=(B, A, B)),
    Spec("shares stay behind", "the draining list may hold nothing; a, b, a, b",
         script=(B, A, B), settings=LISTS_NOTHING),
    Spec("a request is late, and an answer is lost", "of either", script=(B,),
         purse={"lose request": 1, "lose answer": 1}),
    Spec("there and back, and two faults", "of a", script=(B, A),
         purse={"lose answer": 1, "lose request": 1}, victims=A),
    Spec("a lease ends, with shares behind", "", script=(B, A), settings=LISTS_NOTHING,
         purse={"end lease": 1}, victims=A),
    Spec("either is killed", "and started again", script=(B,), purse={"kill": 1, "restart": 1}),
    Spec("get_role, there and back", "", script=(B, A), purse={"look": 2}, victims=A),
    Spec("get_role and a deadline", "", script=(B,), purse={"look": 2, "expire": 1}, victims=A),
    Spec("nobody lets go", "user code never releases by itself", script=(B, A), clings=AB,
         purse={"end lease": 1, "lose answer": 1}, victims=A),
    Spec("all at once", "several messages reach a member in one step, or a list overtakes them",
         script=(B, A), batches=True, purse={"relist": 1}),
    Spec("a role is passed on, there and back", "", script=(B, A),
         purse={"pass on": 1, "lose answer": 1}, victims=A),
    Spec("two roles swap, and back", "", roles=TWO, begin=AB, script=(BA, AB)),
    Spec("two roles, growing and shrinking", "", roles=TWO, begin=A, script=(AB, B)),
    Spec("three members", "", members=("a", "b", "c"), script=(B, ("c",))),
    Spec("a version is deleted, there or back", "by an operator", script=(B, A),
         purse={"unproclaim": 1}),
    # Real coordinators.
    Spec("either dies and comes back", "real coordinators", versions=4, settings=AT_ONCE,
         purse={"kill": 1, "restart": 1}),
    Spec("one of three dies", "real coordinators; a role is to go from a to c, which joins",
         members=("a", "b", "c"), roles=(TO_C,), late_joiners=("c",), versions=5,
         settings=AT_ONCE, purse={"kill": 1}, victims=A),
    Spec("leaving, and an answer is lost", "real coordinators", versions=4, settings=AT_ONCE,
         purse={"leave": 1, "lose answer": 1}),
    Spec("an offer, and b joins, to the end", "real coordinators; until b works", versions=3,
         settings=OFFERS, late_joiners=B, purse={"leave": 1}, victims=A),
    Spec("an offer, and an answer is lost", "real coordinators; b joins meanwhile", versions=2,
         settings=OFFERS, late_joiners=B, purse={"leave": 1, "lose answer": 1}, victims=A),
    Spec("an offer, and either is killed", "real coordinators; b joins meanwhile", versions=2,
         settings=OFFERS, late_joiners=B, purse={"leave": 1, "kill": 1}),
    Spec("an offer is taken, and an answer is lost", "a leaves, and is told to leave now",
         script=(B,), settings=OFFERS, purse={"leave": 1, "leave now": 1, "lose answer": 1},
         victims=A),
    Spec("a leaver clings, and a request is late", "real coordinators; its last record, say",
         roles=TWO[:1], versions=4, settings=AT_ONCE | {"leave_timeout": 4.0},
         purse={"leave": 1, "lose request": 1}, victims=A, clings=A),
    Spec("the oldest clings, and another goes on", "real coordinators; b joins meanwhile",
         roles=TWO[:1], versions=3, settings=AT_ONCE | {"leave_timeout": 4.0}, purse={"leave": 1},
         late_joiners=B, victims=A, clings=A),
    Spec("an operator pins and unpins", "real coordinators", versions=4, settings=AT_ONCE,
         script=(PIN, UNPIN)),
    Spec("the token base is raised, and a role moves", "real coordinators", versions=5,
         settings=AT_ONCE, script=(RAISE, PIN)),
    Spec("a wish, and an answer is lost", "real coordinators", versions=5, settings=AT_ONCE,
         script=(PIN,), purse={"lose answer": 1}),
    Spec("a dead record coordinates", "alone; until it is removed, as etcd does not know its lease",
         members=A, late_joiners=A, remains=(("d", UNKNOWN),), versions=4, settings=AT_ONCE,
         far_s=20.0, purse={"end lease": 1, "lose answer": 1}),
    Spec("two want a name that nobody keeps",
         "a record without a lease; either removes it, late too",
         members=("a", "a'"), late_joiners=("a", "a'"), remains=(("a", NO_LEASE),)),
    Spec("two want the name of a dead record",
         "the same; etcd does not know its lease, and real coordinators",
         members=("a", "a'"), late_joiners=("a", "a'"), remains=(("a", UNKNOWN),), versions=3,
         settings=AT_ONCE, far_s=20.0),
    Spec("one of two of one name is refused", "by its join_timeout", members=("a", "a'"),
         late_joiners=("a'",), settings={"join_timeout": 5.0}, purse={"end lease": 1}),
    Spec("a deadline between two halves", "of a member that serves, or that coordinates",
         versions=3, settings=AT_ONCE, late_joiners=B, purse={"expire": 1}, victims=A, halves=True),
    # Histories of etcd.
    Spec("etcd loses its volume while a role moves", "b is cut off",
         begin=B, script=(A,), purse={"wipe": 1}, cut_off=B, **REPLACED),
    Spec("etcd is restored", "alone; from a copy of any time before",
         members=A, script=(B,), purse={"restore": 1},
         **REPLACED),
    Spec("etcd is restored while a role moves", "both are cut off; from a copy of any time before",
         begin=B, script=(A,), purse={"restore": 1}, cut_off=AB, **REPLACED),
    Spec("etcd is restored while a role moves, and one is told", "b is cut off; no retry rings",
         begin=B, script=(A,), purse={"restore": 1}, cut_off=B, **REPLACED | {"far_s": 0.01}),
    Spec("etcd loses its volume, and all are told", "a role has another owner after it", begin=B,
         anew=A, purse={"wipe": 1}, **REPLACED),
]  # fmt: skip
