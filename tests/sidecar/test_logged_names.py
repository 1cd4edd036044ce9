"""Test that the log has names of others only as JSON strings."""

import asyncio
import json
import logging
import types

import pytest
from sidecar_apart import Sidecar, run, until
from test_member_grants import Member

from rink.errors import RinkError
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.membership import Membership
from rink.sidecar.service import Service

ROLE = 'a" granted\u2028role "b'
"""A name that would begin another line, and end its quotes."""


@pytest.fixture
def lines(caplog):
    """Return the lines that were logged."""
    caplog.set_level(logging.INFO, "rink")
    return lambda: [record.getMessage() for record in caplog.records]


def is_quoted(lines, count):
    """Return whether this many lines have the name as a JSON string."""
    assert not any(ROLE in line or "\u2028" in line for line in lines)
    found = sum(json.dumps(ROLE) in line for line in lines)
    assert found == count, lines
    return True


def test_names_of_roles_and_reasons_are_logged_as_json(lines):
    @run
    async def tell():
        sidecar = Sidecar()
        async with sidecar.stream(roles=[ROLE], consumer="web") as stream:
            await stream.event()
            turn = sidecar.grant(ROLE)
            await stream.event()
            sidecar.service.lost(turn, ROLE)
            await stream.event()
            sidecar.service.release(turn.consumer, ROLE, turn.token)
            stream.abort()

    tell()
    assert is_quoted(lines(), 3)
    assert json.dumps(ROLE) + ": lost" in lines()[1]
    assert lines()[1].endswith(json.dumps(ROLE)), "the reason"
    assert 'consumer "web": writes to its stream timed out, so the stream was closed' in lines()


def test_wait_that_fails_is_logged_as_json(lines):
    @run
    async def fail():
        member = Member()

        async def await_role(*_, **__):
            raise ValueError(ROLE)

        member.await_role = await_role
        member.consumer(ROLE)
        await until(lines)

    fail()
    assert is_quoted(lines(), 1)
    assert lines()[0].endswith(json.dumps(ROLE)), "the error"


def test_trouble_and_drain_are_logged_as_json(lines):
    class Group:
        group = name = ROLE

        async def join(self):
            raise RinkError(ROLE)

    @run
    async def fail():
        service = Service(ConsumerTurns(9_000, 30_000), types.SimpleNamespace)
        membership = Membership(service, Group, absent_s=1, stays=True)
        running = asyncio.create_task(membership.run())
        await until(lines)
        membership.drain(ROLE)
        await running

    fail()
    assert is_quoted(lines(), 2)
    assert lines()[0].startswith(f"cannot join group {json.dumps(ROLE)}, ")
    assert lines()[0].endswith(json.dumps(ROLE)), "the error"
