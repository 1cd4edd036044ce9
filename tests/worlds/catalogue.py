"""The worlds: what each is for, how large it is, and whether it is gone through by default."""

from __future__ import annotations

from spec import Spec

from rink.core.ranks import Settings
from rink.core.schemes import rank_of

AT_ONCE = {"ranking": Settings(rebalance_delay=0.0, initial_delay=0.0)}
LISTS_NOTHING = {"draining_limit_bytes": 0}

A, B, AB, BA = ("a",), ("b",), ("a", "b"), ("b", "a")


def _role(rank: int) -> str:
    """A role that a group of two gives to one rank."""
    return next(name for name in "pqrstuvw" if rank_of(name, 2) == rank)


TWO = (_role(0), _role(1))

BY_DEFAULT = [
    Spec("there and back", "ownership goes to b and back to a, user code lets go when it likes",
         script=(B, A)),
    Spec("an answer is lost", "one transaction is carried out and not answered",
         script=(B,), purse={"lose answer": 1}),
    Spec("a request is late", "one is given up and carried out at any later time; another's answer is lost",
         script=(B,), purse={"lose request": 1, "lose answer": 1}),
    Spec("shares stay behind", "the draining list may hold nothing; a, b, a, b",
         script=(B, A, B), settings=LISTS_NOTHING),
    Spec("several shares stay behind", "the same; two roles are lost from two shares",
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
    Spec("two roles swap", "each goes to the other member", roles=TWO, begin=AB, script=(BA,)),
    Spec("somebody joins", "real leaders; b comes to a", versions=3, settings=AT_ONCE,
         late_joiners=B, purse={"lose answer": 1}),
    Spec("the leader dies", "real leaders; what it proclaimed last may come late",
         versions=4, settings=AT_ONCE, late_joiners=B, purse={"kill": 1}, victims=A),
    Spec("the leader leaves", "real leaders; it hands over and goes", versions=4, settings=AT_ONCE,
         purse={"leave": 1}, victims=A),
]  # fmt: skip

DEEP = [
    Spec("a, b, a, b", "four versions", script=(B, A, B)),
    Spec("a, b, a, b, and one answer is lost", "", script=(B, A, B),
         purse={"lose answer": 1}, victims=A),
    Spec("there and back, and two faults", "", script=(B, A),
         purse={"lose answer": 1, "lose request": 1}),
    Spec("shares stay behind, and an answer is lost", "",
         script=(B, A, B), settings=LISTS_NOTHING, purse={"lose answer": 1}),
    Spec("there and back, a deadline is noticed", "", script=(B, A), purse={"expire": 1}, victims=A),
    Spec("there and back, a lease ends early", "", script=(B, A), purse={"end lease": 1}, victims=A),
    Spec("there and back, a record is deleted", "", script=(B, A), purse={"delete": 1}, victims=A),
    Spec("a deadline and a lost answer", "", script=(B,),
         purse={"expire": 1, "lose answer": 1, "lose request": 1}, victims=A),
    Spec("a lease ends, with shares behind", "", script=(B, A), settings=LISTS_NOTHING,
         purse={"end lease": 1}, victims=A),
    Spec("either is killed", "", script=(B, A), purse={"kill": 1, "restart": 1}),
    Spec("get_role, there and back", "", script=(B, A), purse={"look": 2}),
    Spec("get_role and a deadline", "", script=(B,), purse={"look": 2, "expire": 1}),
    Spec("all at once", "several messages reach a member in one step, or a list overtakes them",
         script=(B, A), batches=True, purse={"relist": 1}),
    Spec("three members", "", members=("a", "b", "c"), script=(B, ("c",))),
    Spec("two roles swap, and back", "", roles=TWO, begin=AB, script=(BA, AB)),
    Spec("two roles, growing and shrinking", "", roles=TWO, begin=A, script=(AB, B)),
    Spec("two die and come back", "real leaders", versions=5, settings=AT_ONCE,
         purse={"kill": 1, "restart": 1}),
    Spec("the leader is cut off", "real leaders; its lease ends and it does not know", versions=4,
         settings=AT_ONCE, purse={"end lease": 1}, victims=A),
    Spec("one of three dies", "real leaders", members=("a", "b", "c"), versions=5,
         settings=AT_ONCE, purse={"kill": 1}, victims=A),
    Spec("leaving, and an answer is lost", "real leaders", versions=4, settings=AT_ONCE,
         purse={"leave": 1, "lose answer": 1}),
    Spec("nobody lets go", "user code never releases by itself", script=(B, A, B), clings=AB,
         purse={"end lease": 1, "lose answer": 1}),
]  # fmt: skip
