"""The commands run over an etcd in this process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from cli_support import Clock, Town

from rink.cli.commands import commands
from rink.cli.options import Outside


@pytest.fixture
def town():
    """A group's keys, written as members would write them."""
    with Town() as town:
        yield town


@pytest.fixture
def run(town, monkeypatch):
    """Runs a command line; returns what click's runner tells of it."""
    for name in ("RINK_ETCD", "RINK_ETCD_USER", "RINK_ETCD_PASSWORD"):
        monkeypatch.delenv(name, raising=False)

    def run(*line, **env):
        world = Outside(connect=town.connect, clock=Clock(), quiet_s=0.0)
        return CliRunner().invoke(commands, line, obj=world, env=env)

    return run


@pytest.fixture
def run_json(run):
    """Runs a command line that writes one JSON value, and returns that."""

    def run_json(*line):
        result = run(*line, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return run_json
