"""Test tries to join while etcd is away: their pauses and log lines."""

import asyncio
import itertools
import logging

import pytest
from jumping import jumping, pass_time

from rink.errors import RinkError
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.membership import Membership
from rink.sidecar.service import Service


class Group:
    """Stand in for a group that cannot be joined."""

    group, name = "orders", "web-1"

    def __init__(self, tried_at):
        self.tried_at = tried_at

    async def join(self):
        self.tried_at.append(asyncio.get_running_loop().time())
        raise RinkError("etcd is away")


@jumping
async def try_for(seconds, tried_at):
    """Try to join for a while, and note the times."""
    service = Service(ConsumerTurns(9_000, 30_000))
    membership = Membership(service, lambda: Group(tried_at), absent_s=10, stays=True)
    running = asyncio.create_task(membership.run())
    await pass_time(seconds)
    assert membership.trouble == "etcd is away"
    membership.drain("the test is over")
    await running


def test_tries_to_join_have_growing_pauses():
    tried_at = []
    try_for(600, tried_at)
    pauses = [after - before for before, after in itertools.pairwise(tried_at)]
    longest_s = 0.05
    for pause in pauses:
        assert longest_s / 2 <= pause + 1e-9
        assert pause <= longest_s + 1e-9
        longest_s = min(2.0, 2 * longest_s)
    assert len(pauses) == pytest.approx(600 / 1.5, rel=0.1), "it goes on for ever"


def test_tries_to_join_cost_one_line_a_minute(caplog):
    caplog.set_level(logging.INFO, "rink.sidecar")
    try_for(59, [])
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        'cannot join group "orders", retrying: "etcd is away"',
        'draining: "the test is over"',
    ]
    caplog.clear()
    try_for(600, [])
    assert 10 <= sum("cannot join" in record.getMessage() for record in caplog.records) <= 11
