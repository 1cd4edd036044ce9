"""The worlds see what they are to see: rules broken in a way that has one known shortest story."""

import attrs
import pytest
from catalogue import AB, A, B
from exploring import Exploration, explore
from rules import BrokenRuleError
from spec import Spec
from universe import Universe

from rink.core import grants
from rink.core.claims import Obstacles
from rink.core.holds import Table
from rink.core.node import Node
from rink.core.writer import Writer

MOVES_ONCE = Spec("moves once", "", script=(B,))


def test_a_world_without_faults_is_gone_through_whole():
    result = explore(MOVES_ONCE)
    assert (result.broken, result.is_whole) == ("", True)
    again = explore(MOVES_ONCE)
    assert (again.states, again.moves) == (result.states, result.moves)


def test_a_bound_is_told_of():
    result = explore(MOVES_ONCE, most=50)
    assert not result.is_whole


def test_two_holders_are_seen(monkeypatch):
    monkeypatch.setattr(Obstacles, "to", lambda *_: "")
    result = explore(MOVES_ONCE)
    assert "x is held by a and by b" in result.broken
    assert result.trace[0] == "the outsider proclaims ('b',)"
    assert "a lets go of x" not in result.trace


def test_a_claim_that_is_withdrawn_too_early_is_seen(monkeypatch):
    monkeypatch.setattr(Table, "draining", property(lambda _: []))
    assert "its record does not claim it" in explore(MOVES_ONCE).broken


def test_a_wait_that_does_not_end_is_seen(monkeypatch):
    monkeypatch.setattr(grants, "grant", lambda *_: [])
    spec = Spec("a wait", "", script=(B,))
    with pytest.raises(BrokenRuleError, match="a waits for x, which it owns"):
        Exploration(Universe(spec)).begin()


def test_an_alarm_that_is_not_set_is_seen(monkeypatch):
    monkeypatch.setattr(Writer, "failed", lambda *_: None)  # nothing is tried again
    result = explore(Spec("no retry", "", script=(B,), purse={"lose request": 1}))
    assert "a wait does not end" in result.broken or "in SENT" in result.broken


def test_a_step_that_is_not_done_at_once_is_seen(monkeypatch):
    step = Node.step
    halves = []

    def lazy(node, now, events):
        halves.append(events)
        return step(node, now, events) if len(halves) % 2 else [*step(node, now, events), "more"]

    monkeypatch.setattr(Node, "step", lazy)
    with pytest.raises(AssertionError, match="not done in one step"):
        Exploration(Universe(MOVES_ONCE)).begin()


def test_a_token_that_does_not_rise_is_seen(monkeypatch):
    publish = Node._publish

    def with_one_token(node):
        publish(node)
        node.table.gate = attrs.evolve(node.table.gate, token=7)

    monkeypatch.setattr(Node, "_publish", with_one_token)
    assert "token 7 of b after 7" in explore(MOVES_ONCE).broken


def test_what_user_code_still_runs_after_a_rejoin_is_seen(monkeypatch):
    """The claim of the new record is what a grant to another must wait for."""
    desired = Node._desired_record

    def without_draining(node):
        record = desired(node)
        return attrs.evolve(record, draining=()) if node.tenure.lease > 3 else record

    monkeypatch.setattr(Node, "_desired_record", without_draining)
    result = explore(Spec("rejoin", "", script=(B,), purse={"end lease": 1}, victims=A))
    assert "rejoined" in result.broken


def test_a_claim_that_was_given_up_may_be_granted_to_another():
    """R10: from then on only the token guards."""
    spec = Spec("grace", "", script=(B,), settings={"grace": 1.0}, clings=AB)
    exploration = Exploration(Universe(spec))
    lease_of_b = exploration.universe.actors[1].facts[exploration.begin().members[1].state].lease
    assert not exploration.go(100_000).broken
    both = [
        code
        for code in exploration.came_from
        if "a wakes" in exploration.way_to(code)
        and exploration.codes.state(code).tokens[0][0] == lease_of_b
    ]
    assert both, "b is granted the role, though a has never let go"
