"""Test what follows a member's grants and losses.

This covers tokens between turns, old sessions, handles and ends.
"""

import asyncio
import contextlib
import logging
import signal
import types

import pytest
from sidecar_apart import Clock, run, until

from rink.errors import RoleLost
from rink.sidecar import program
from rink.sidecar.clock import in_ms
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer
from rink.sidecar.membership import Membership
from rink.sidecar.service import Service

HOLD_MS = 9_000


class Handle:
    """Stand in for a role that is held until a test ends it."""

    def __init__(self, token):
        self.token = token
        self.lost = asyncio.Event()
        self.is_released = False

    @property
    def is_held(self):
        return not (self.lost.is_set() or self.is_released)

    def raise_if_lost(self):
        if not self.is_held:
            raise RoleLost("version 7 changed the owner", role="a")

    def release(self):
        self.is_released = True


class Member:
    """Run a membership beside a group whose grants a test makes."""

    def __init__(self):
        self.service = Service(ConsumerTurns(HOLD_MS, 30_000), Clock())
        self.membership = Membership(self.service, make=None, absent_s=10)
        self.membership.rink = self
        self.waits = asyncio.Queue()
        self.begin_session(1)

    def begin_session(self, lease):
        deadline = self.service.clock() / 1000 + 15
        member_lease = types.SimpleNamespace(is_alive=True, id=lease, deadline=deadline)
        node = types.SimpleNamespace(member_lease=member_lease)
        self._engine = types.SimpleNamespace(lock=contextlib.nullcontext(), node=node)

    async def await_role(self, name, *, token_above=0):
        grant = asyncio.get_running_loop().create_future()
        self.waits.put_nowait((name, token_above, grant))
        return await grant

    def consumer(self, *roles, name="web"):
        consumer = Consumer(name, f"secret-{name}")
        consumer.calls = 1
        self.service.hold(consumer, list(roles))
        _, inbox = self.service.open_stream(consumer)
        return consumer, inbox

    def turn(self):
        return self.service.turns.turn("a")


@run
async def test_next_turn_waits_for_a_token_above_the_last_one():
    member = Member()
    first, _ = member.consumer("a")
    second, _ = member.consumer("a", name="cron")
    name, token_above, grant = await member.waits.get()
    assert (name, token_above) == ("a", 0)
    handle = Handle(7)
    grant.set_result(handle)
    await until(member.turn)
    assert member.turn().consumer is first
    member.service.release(first, "a", 7)
    assert handle.is_released
    name, token_above, grant = await member.waits.get()
    assert (name, token_above) == ("a", 7)
    grant.set_result(Handle(9))
    await until(member.turn)
    assert (member.turn().consumer, member.turn().token) == (second, 9)


@run
async def test_grant_of_a_session_that_ended_meanwhile_is_told_to_nobody():
    """A stopped process gets a grant when its next session has begun.

    Another member may hold the role by then.
    """
    member = Member()
    _, inbox = member.consumer("a")
    _, _, grant = await member.waits.get()
    handle = Handle(7)
    grant.set_result(handle)
    handle.lost.set()  # with its session
    member.begin_session(2)
    _, token_above, _ = await member.waits.get()
    assert token_above == 7
    assert handle.is_released
    assert member.turn() is None
    assert not any(hasattr(event, "turn") for event in inbox.events)


@run
async def test_handle_of_a_lost_role_is_kept_until_the_answer():
    member = Member()
    consumer, _ = member.consumer("a")
    _, _, grant = await member.waits.get()
    handle = Handle(7)
    grant.set_result(handle)
    await until(member.turn)
    handle.lost.set()
    await until(lambda: member.turn().lost_at_ms)
    assert member.turn().why == "version 7 changed the owner"
    assert not handle.is_released
    member.service.release(consumer, "a", 7)
    assert handle.is_released


@run
async def test_handle_that_came_after_its_wait_was_ended_is_released():
    member = Member()
    consumer, _ = member.consumer("a")
    _, _, grant = await member.waits.get()
    handle = Handle(7)
    member.membership._waits["a"].cancel = lambda: None  # the grant was first
    member.service.release(consumer, "a", None)
    grant.set_result(handle)
    await until(lambda: handle.is_released)
    assert member.turn() is None


def test_deadline_in_milliseconds_is_rounded_down():
    assert in_ms(1234.5679) == 1_234_567


class Ended(BaseException):
    """Report that the process has ended at once."""


@pytest.fixture
def ends(monkeypatch):
    """Return the statuses with which the process ended at once."""
    statuses = []

    def end(status):
        statuses.append(status)
        raise Ended

    monkeypatch.setattr(program.os, "_exit", end)
    return statuses


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
def test_sidecar_that_fails_ends_at_once_and_gives_nothing_back(ends, caplog, error):
    """In order, it would revoke its lease while programs still work."""
    with pytest.raises(Ended), program.exits_at_once():
        raise error
    assert ends == [1]
    assert "its roles are free when its lease ends" in caplog.text


def test_first_signal_after_a_drain_is_said(caplog):
    """A preStop hook has drained it. A drain does not count as a signal."""
    caplog.set_level(logging.INFO, "rink.sidecar")

    @run
    async def tell():
        member = Member()
        told = types.SimpleNamespace(
            _signals=0,
            service=member.service,
            membership=member.membership,
            _end=asyncio.Event().wait,
        )
        member.membership.drain("a caller of the API asked for it")
        caplog.clear()
        program.Program._signalled(told, signal.SIGTERM)

    tell()
    text = "SIGTERM: the sidecar is already leaving; a second signal ends the wait for a successor"
    assert [record.getMessage() for record in caplog.records] == [text]


def test_third_signal_ends_at_once_and_gives_nothing_back(ends):
    told = types.SimpleNamespace(_signals=2)
    with pytest.raises(Ended):
        program.Program._signalled(told, signal.SIGTERM)
    assert ends == [128 + signal.SIGTERM]
