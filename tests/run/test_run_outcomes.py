"""Test the slot and the role if the command is not started."""

from __future__ import annotations

import asyncio
import types

import pytest

from rink import _member_internals
from rink.core.keys import Keys
from rink.etcd.api import Put
from rink.run import supervisor
from rink.run.command_run import CommandOutcome
from rink.run.exit_codes import LOST, ExitStatus
from rink.run.run_settings import RunSettings
from rink.run.supervisor import CommandSupervisor
from rink.testing.memory.cluster import MemoryCluster


class Role:
    """Stand in for a role that is held."""

    name, token, rank, is_held = "r", 4, 0, True

    def raise_if_lost(self):
        pass

    def release(self):
        pass


@pytest.fixture
def supervised(monkeypatch):
    """Return a supervisor on an etcd in memory, and the results of its runs."""
    with MemoryCluster() as cluster:
        etcd = cluster.client()

        def supervised(**settings):
            record = Keys.of("rink/", "g").member("a")
            session = etcd.txn((), (Put(record, b"record"),)).header.revision
            made = CommandSupervisor(
                RunSettings(group="g", role="r", command=("true",), **settings),
                types.SimpleNamespace(etcd=etcd, prefix="rink/"),
            )
            made._member._joined = types.SimpleNamespace(name="a")
            monkeypatch.setattr(_member_internals, "create_revision_of", lambda _: session)
            outcomes = []

            async def run(_):
                return outcomes.pop(0)

            monkeypatch.setattr(made, "_run", run)
            return made, outcomes

        yield supervised


ENDED = CommandOutcome(status=0, is_started=True, is_lost=False, ran_for=1.0)
STOPPED = CommandOutcome(status=15, is_started=True, is_lost=True, ran_for=1.0)


def test_slot_begun_and_not_started_is_still_this_members(supervised):
    """The role was lost between begin and start.

    No other member would run the slot.
    """

    async def use():
        made, outcomes = supervised(slot="s")
        outcomes += [None, ENDED]
        assert await made._use(Role()) is None
        assert not await made._is_slot_over()
        assert await made._use(Role()) == ExitStatus(0)
        assert await made._is_slot_over()

    asyncio.run(use())


@pytest.mark.parametrize("retry", [False, True])
def test_slot_started_and_lost_is_run_again_only_if_asked(supervised, monkeypatch, retry):
    async def use():
        made, outcomes = supervised(slot="s", retry_if_unfinished=retry)
        monkeypatch.setattr(made, "_pause", lambda *_: asyncio.sleep(0))
        outcomes += [STOPPED, ENDED]
        assert await made._use(Role()) is None
        assert await made._is_slot_over() is not retry
        assert await made._use(Role()) == ExitStatus(0)
        assert outcomes == ([] if retry else [ENDED])

    asyncio.run(use())


def test_run_once_that_is_not_started_has_lost_the_role(supervised):
    async def use():
        made, outcomes = supervised(once=True)
        outcomes += [None]
        assert await made._use(Role()) == ExitStatus(LOST)

    asyncio.run(use())


@pytest.mark.parametrize("error", [ValueError("a bug"), supervisor.RinkError("refused")])
def test_run_that_fails_leaves_the_group(supervised, monkeypatch, caplog, error):
    reaper = types.SimpleNamespace(reap=lambda: None)
    monkeypatch.setattr(supervisor, "Reaper", lambda: reaper)
    monkeypatch.setattr(supervisor.signal, "signal", lambda *_: None)  # those of the tests stay
    left = []

    async def fail():
        raise error

    async def leave(_):
        left.append(True)

    async def run():
        made, _ = supervised()
        monkeypatch.setattr(made, "_hold", fail)
        monkeypatch.setattr(made._member, "leave", leave)
        return await made.run()

    assert asyncio.run(run()) == ExitStatus(supervisor.FAILED)
    assert left == [True]
    assert str(error) in caplog.text
