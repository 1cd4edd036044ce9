"""After each step of an engine, all that its member keeps equals what is derived anew."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

import derived

from rink.core.node import Node


@pytest.fixture(autouse=True)
def checked_steps(monkeypatch):
    step = Node.step

    def checked(node, now, events, *rest):
        effects = step(node, now, events, *rest)
        derived.check(node, now)
        return effects

    monkeypatch.setattr(Node, "step", checked)
