"""Test a sidecar before it serves: refusals, and what probes check."""

import asyncio

import httpx
import pytest
from jumping import jumping, pass_time
from sidecar_apart import run

from rink import aio
from rink.errors import ConfigError
from rink.sidecar import program as module
from rink.sidecar.listeners import Address
from rink.sidecar.program import Program, SidecarSettings
from rink.sidecar.public import LAG_INTERVAL_S, LoopLag

SETTINGS = SidecarSettings(listen=Address("127.0.0.1", 8181), public=None)


@pytest.fixture
def listened(monkeypatch):
    """Note the addresses of listeners, and open no socket."""
    listened = []
    monkeypatch.setattr(module, "listen", lambda address, *_: listened.append(address))
    return listened


def program(**member):
    """Return a sidecar with these settings of its member."""
    session = aio.Session("http://127.0.0.1:1")
    return Program(SETTINGS, session, lambda: aio.Rink(session, "orders", **member))


@run
async def test_member_that_cannot_be_made_is_refused_before_it_listens(listened):
    """Otherwise the first hold of a program would end the sidecar."""
    with pytest.raises(ConfigError, match="member name is empty"):
        program(name="")
    assert listened == []


@pytest.mark.usefixtures("listened")
@jumping
async def test_healthz_fails_once_the_loop_was_late_by_the_margin():
    loop, lag, sidecar = asyncio.get_running_loop(), LoopLag(), program()
    assert sidecar.session.margin == 2.0
    measuring = asyncio.create_task(lag.run())
    transport = httpx.ASGITransport(sidecar._public(lag))
    client = httpx.AsyncClient(transport=transport, base_url="http://10.0.0.7:8182")
    answers = []
    for blocked_s in (0.0, 1.9, 2.1, 0.0):
        await pass_time(LAG_INTERVAL_S / 2)
        loop._now += LAG_INTERVAL_S / 2 + blocked_s
        for _ in range(5):  # the look that is due now
            await pass_time(0)
        answers.append(await client.get("/healthz"))
    assert [answer.status_code for answer in answers] == [200, 200, 503, 200]
    assert answers[2].text == "the event loop is 2.1 s late\n"
    measuring.cancel()
