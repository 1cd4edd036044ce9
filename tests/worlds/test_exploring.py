"""Test that the worlds see broken rules.

Each rule is broken in a way that has one known shortest story.
"""

import attrs
import derived
import pytest
from catalogue import AB, AT_ONCE, BY_DEFAULT, NO_LEASE, PIN, RAISE, A, B
from exploring import Exploration, explore
from rules import BrokenRuleError
from small_etcd import Etcd
from spec import Spec
from universe import Universe

from rink.core import effects as do
from rink.core import grants, next_version
from rink.core.claims import Obstacles
from rink.core.etcd_history import EtcdHistory
from rink.core.holds import Table
from rink.core.lifecycle import Living
from rink.core.member import Node
from rink.core.record_writer import Writer
from rink.core.state_tables import Life, LifeEvent
from rink.core.view import View

MOVES_ONCE = Spec("moves once", "", script=(B,))
TWINS = Spec("twins", "", members=("a", "a'"), late_joiners=("a'",), purse={"kill": 1})
BY_NAME = {spec.name: spec for spec in BY_DEFAULT}
CLINGS = BY_NAME["a leaver clings"]
OLDEST_CLINGS = BY_NAME["the oldest clings, and another joins"]
OLDEST_OF_THREE = BY_NAME["the oldest of three clings"]
HEIRS = Spec("heirs", "", members=("a", "a'"), late_joiners=("a", "a'"), remains=(("a", NO_LEASE),))


def test_world_without_faults_is_gone_through_whole():
    result = explore(MOVES_ONCE)
    assert (result.broken, result.is_whole) == ("", True)
    again = explore(MOVES_ONCE)
    assert (again.states, again.moves) == (result.states, result.moves)


def test_bound_is_told_of():
    result = explore(MOVES_ONCE, most=50)
    assert not result.is_whole


def test_two_holders_are_seen(monkeypatch):
    monkeypatch.setattr(Obstacles, "to", lambda *_: "")
    result = explore(MOVES_ONCE)
    assert "x is held by a and by b" in result.broken
    assert result.trace[0] == "the outsider proclaims ('b',)"
    assert "a lets go of x" not in result.trace


def test_claim_that_is_withdrawn_too_early_is_seen(monkeypatch):
    monkeypatch.setattr(Table, "draining", property(lambda _: []))
    assert "its record does not claim it" in explore(MOVES_ONCE).broken


def test_lease_revoked_under_user_code_that_clings_is_seen(monkeypatch):
    def revoke(living, table, lease, writer, now, out):
        if living.state is not Life.LETTING_GO:
            return
        if table.draining and now < living.release_until:
            out.wake(living.release_until)
        else:
            living._on(LifeEvent.RELEASED)

    monkeypatch.setattr(Living, "let_go", revoke)
    assert "a revokes its lease, and works on " in explore(CLINGS).broken


def test_leaver_whose_user_code_clings_is_gone_and_its_role_moves_later():
    exploration = Exploration(Universe(CLINGS))
    assert not exploration.go(5_000).broken
    a, b = exploration.universe.actors
    states = [exploration.codes.state(code) for code in exploration.came_from]
    gone = [one for one in states if is_out(a.facts[one.members[0].state])]
    assert {bool(b.facts[one.members[1].state].holds) for one in gone} == {False, True}


@pytest.mark.parametrize(
    "spec", [CLINGS, OLDEST_CLINGS, OLDEST_OF_THREE], ids=lambda spec: spec.name
)
def test_leaver_that_coordinates_while_others_are_active_is_seen(spec, monkeypatch):
    """A leaver that coordinates while others are active is reported.

    It no longer steps when it has left, and its record stays for a TTL.
    """
    oldest = property(lambda view: next((m for m in view.by_age if m.can_coordinate), None))
    monkeypatch.setattr(View, "coordinator", oldest)
    assert "a wait does not end" in explore(spec).broken


def test_member_that_joins_after_the_oldest_clings_is_ranked():
    """A member that joins after the oldest one clings is ranked.

    The next oldest one coordinates, while the record of the oldest is there.
    """
    exploration = Exploration(Universe(OLDEST_OF_THREE))
    assert not exploration.go(30_000).broken
    universe = exploration.universe
    states = [exploration.codes.state(code) for code in exploration.came_from]
    contents = [universe.stores.contents[one.etcd] for one in states if clings_out(universe, one)]
    assert any("c" in one.version.ranks and "a" in one.records for one in contents)


def clings_out(universe, state):
    return is_out(universe.actors[0].facts[state.members[0].state])


def is_out(facts):
    return facts.life is Life.RAN_OUT and bool(facts.holds)


def test_wait_that_does_not_end_is_seen(monkeypatch):
    monkeypatch.setattr(grants, "grant", lambda *_: [])
    monkeypatch.setattr(derived, "_check_waits", lambda *_: None)  # which sees it before
    spec = Spec("a wait", "", script=(B,))
    with pytest.raises(BrokenRuleError, match="a waits for x, which it owns"):
        Exploration(Universe(spec)).begin()


def test_alarm_that_is_not_set_is_seen(monkeypatch):
    monkeypatch.setattr(Writer, "failed", lambda *_: None)  # nothing is tried again
    result = explore(Spec("no retry", "", script=(B,), purse={"lose request": 1}))
    assert "a wait does not end" in result.broken or "in SENT" in result.broken


def test_step_that_is_not_done_at_once_is_seen(monkeypatch):
    step = Node.step_group
    steps = []

    def lazy(node, now):
        steps.append(now)
        return step(node, now) if len(steps) % 2 else [*step(node, now), "more"]

    monkeypatch.setattr(Node, "step_group", lazy)
    with pytest.raises(AssertionError, match="not done in one step"):
        Exploration(Universe(MOVES_ONCE)).begin()


def test_token_that_does_not_rise_is_seen(monkeypatch):
    publish = Node._publish

    def with_one_token(node, now):
        publish(node, now)
        node.table.gate = attrs.evolve(node.table.gate, token=7)

    monkeypatch.setattr(Node, "_publish", with_one_token)
    assert "token 7 of b after 7" in explore(MOVES_ONCE).broken


WIPED = BY_NAME["etcd loses its volume"]


def test_grants_in_a_new_history_at_once_are_seen(monkeypatch):
    """Grants in a new history that come at once are seen.

    A member that is cut off may still hold the role by the old history.
    """
    monkeypatch.setattr(EtcdHistory, "why_closed", lambda self, now: "")
    assert "x is held by" in explore(WIPED).broken


def test_another_history_that_is_not_noticed_is_seen(monkeypatch):
    monkeypatch.setattr(EtcdHistory, "contradiction", lambda *_: "")
    assert "is held by" in explore(WIPED).broken


def test_what_user_code_still_runs_after_a_rejoin_is_seen(monkeypatch):
    """The claim of the new record is what a grant to another must wait for."""
    desired = Node._desired_record

    def without_draining(node):
        record = desired(node)
        return attrs.evolve(record, draining=()) if node.member_lease.id > 3 else record

    monkeypatch.setattr(Node, "_desired_record", without_draining)
    result = explore(Spec("rejoin", "", script=(B,), purse={"end lease": 1}, victims=A))
    assert "rejoined" in result.broken


def test_claim_that_was_given_up_may_be_granted_to_another():
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


def served_without_compare(monkeypatch, kind, compare_of):
    """Let etcd serve requests of a kind as if their compare matched."""
    serve = Etcd.serve

    def obedient(etcd, name, effect, now, incarnation):
        if isinstance(effect, kind):
            effect = compare_of(etcd, effect)
        return serve(etcd, name, effect, now, incarnation)

    monkeypatch.setattr(Etcd, "serve", obedient)


def mod_of(etcd):
    return next((kv.mod for key, kv in etcd.kvs.items() if key.endswith(b"members/a")), 0)


def test_record_that_another_of_its_name_writes_over_is_seen(monkeypatch):
    served_without_compare(
        monkeypatch, do.WriteRecord, lambda etcd, one: attrs.evolve(one, compare=mod_of(etcd))
    )
    assert "the record of a is written over" in explore(TWINS).broken


def test_live_record_that_is_removed_is_seen(monkeypatch):
    served_without_compare(
        monkeypatch, do.RemoveRecord, lambda etcd, one: attrs.evolve(one, mod_revision=mod_of(etcd))
    )
    assert "the record of a is removed, and its lease lives" in explore(HEIRS).broken


def test_dead_record_that_nobody_removes_is_seen(monkeypatch):
    monkeypatch.setattr(Node, "_look_after_the_dead", lambda *_: None)
    monkeypatch.setattr(derived, "_check_janitor", lambda _: None)
    assert "a is joining" in explore(HEIRS).broken
    spec = Spec("in nobody's way", "", members=A, late_joiners=A, remains=(("d", NO_LEASE),))
    assert "nobody keeps the records of ['d']" in explore(spec).broken


def test_of_two_of_one_name_the_second_waits_until_the_first_is_gone():
    exploration = Exploration(Universe(TWINS))
    second = exploration.universe.actors[1]
    assert not exploration.go(100_000).broken
    settled = [exploration.codes.state(code) for code in exploration.came_from]
    living = {state.members[0].state >= 0 for state in settled if is_in(second, state)}
    assert living == {False}


def is_in(actors, state):
    return state.members[1].state >= 0 and bool(actors.facts[state.members[1].state].holds)


def test_wish_that_is_not_answered_is_seen(monkeypatch):
    monkeypatch.setattr(next_version._RequestAnswers, "grant", lambda *_: None)
    result = explore(Spec("a request", "", versions=4, settings=AT_ONCE, script=(PIN,)))
    assert "requests that are not answered: 1" in result.broken


def test_token_base_that_is_lowered_is_seen(monkeypatch):
    answers = next_version._RequestAnswers
    monkeypatch.setattr(
        next_version, "_RequestAnswers", lambda pins, _, room: answers(pins, 0, room)
    )
    result = explore(Spec("requests", "", versions=5, settings=AT_ONCE, script=(RAISE, PIN)))
    assert "lowers the token base" in result.broken
