"""Test that failing probes are logged and do not end the command."""

from __future__ import annotations

import asyncio

from rink.run.supervisor import _report_end


def test_probes_that_fail_are_reported(caplog):
    async def fail():
        raise ValueError("a bug")

    async def probe():
        task = asyncio.create_task(fail())
        task.add_done_callback(_report_end)
        await asyncio.wait([task])

    asyncio.run(probe())
    assert "the server of probes and metrics has failed" in caplog.text
    assert "a bug" in caplog.text
