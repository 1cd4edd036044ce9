"""Compare a member's state with one derived anew, after each half step."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

import derived

from rink.core.member import Node


@pytest.fixture(autouse=True)
def checked_steps(monkeypatch):
    step_own, step_group = Node.step_own, Node.step_group

    def own(node, now, *rest):
        effects = step_own(node, now, *rest)
        derived.check_own(node, now)
        return effects

    def group(node, now, *rest):
        effects = step_group(node, now, *rest)
        derived.check_group(node, now)
        return effects

    monkeypatch.setattr(Node, "step_own", own)
    monkeypatch.setattr(Node, "step_group", group)
