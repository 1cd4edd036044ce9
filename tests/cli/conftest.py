"""Run the commands over an etcd in this process."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from cli_support import Town

from rink.cli.commands import commands
from rink.cli.options import Outside

LONG_S = 600.0
"""Longer than an answer takes, even on a busy machine."""


@pytest.fixture
def town():
    """Return a group's keys, as members would write them."""
    with Town() as town:
        yield town


@pytest.fixture
def run(town, monkeypatch):
    """Run a command line, and return the result of click's runner."""
    for name in [one for one in os.environ if one.startswith("RINK_ETCD")]:
        monkeypatch.delenv(name)

    def run(*line, **env):
        # What a command says where an answer is late has tests of its own.
        world = Outside(connect=town.connect, clock=town.clock, quiet_s=0.0, announce_s=LONG_S)
        return CliRunner().invoke(commands, line, obj=world, env=env)

    return run


@pytest.fixture
def run_json(run):
    """Run a command line that writes one JSON value, and return the value."""

    def run_json(*line):
        result = run(*line, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return run_json


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module into the current folder, and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def module(text):
        name = f"module_{uuid.uuid4().hex}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return name

    yield module
    for name in set(sys.modules) - before:
        if name.startswith("module_"):
            del sys.modules[name]


SHOP = """
    from rink.streams import App, Record

    app = App("shop", redis="redis://127.0.0.1:1")

    class Order(Record):
        order_id: int
        customer: str = "x"

    orders = app.stream("orders", record=Order, partition_by="customer", partition_count=4)

    @app.processor(orders)
    async def bill(events):
        async for order in events.records():
            pass

    @app.processor(orders)
    async def ship(events):
        async for order in events.records():
            pass
"""


@pytest.fixture
def shop(module):
    """Return an app as commands name it, without a server behind it."""
    return f"{module(SHOP)}:app"
