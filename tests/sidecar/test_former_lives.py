"""Test that a restarted sidecar waits for the ends of its former life."""

import contextlib

import pytest
from sidecar_apart import run
from test_membership import World, lease_of, until

from rink import aio, rank_of

ROLE = next(f"job-{i}" for i in range(99) if rank_of(f"job-{i}", 2) == 1)
"""A role of the second of two members."""


class Life(World):
    """Run a sidecar beside the etcd of an earlier one."""

    def __init__(self, former, name):
        super().__init__(join_timeout=0.05)
        self.cluster.close()
        self.cluster = former.cluster
        self.etcd = self.cluster.client()
        self.session = aio.Session(self.etcd, ttl=10.0)
        self.name = name

    def make(self):
        rink = aio.Rink(
            self.session, "g", name=self.name, rebalance_delay=0.0, initial_delay=0.0,
            join_timeout=self.join_timeout, leave_timeout=0.05,
        )  # fmt: skip
        self.made.append(rink)
        return rink


@pytest.mark.parametrize("has_its_name", [True, False])
@run
async def test_restarted_sidecar_waits_for_its_former_life(has_its_name):
    """Consumers of the former life may still work until their told ends."""
    async with contextlib.AsyncExitStack() as lives:
        former = await lives.enter_async_context(World())
        former.consumer(ROLE)
        turn = await former.turn(ROLE)
        name, lease = former.membership.rink.name, lease_of(former.membership.rink)
        former.etcd.cut()  # it is killed: nothing is given back

        later = await lives.enter_async_context(Life(former, name if has_its_name else "web-2"))
        later.consumer(ROLE)

        def is_told_why_not():
            grant = later.service.turns.turn(ROLE)
            assert grant is None, "the former life may still hold it"
            return name in later.service.member.obstacle(ROLE)

        await until(is_told_why_not)
        former.cluster.expire_lease(lease)
        assert (await later.turn(ROLE)).token > turn.token
