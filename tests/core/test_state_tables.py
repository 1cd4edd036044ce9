"""Test that every event in every state is in a table or refused.

The page is drawn from the tables.
"""

import importlib.util
import itertools
from pathlib import Path

import pytest

from rink.core.state_tables import (
    LEASE,
    LIFE,
    WRITE,
    LeaseEvent,
    LeaseState,
    Life,
    LifeEvent,
    Write,
    WriteEvent,
    advance,
)

DOCS = Path(__file__).parents[2] / "docs" / "internals"
MACHINES = [(LIFE, Life, LifeEvent), (LEASE, LeaseState, LeaseEvent), (WRITE, Write, WriteEvent)]
PAIRS = [
    (table, state, event)
    for table, states, events in MACHINES
    for state, event in itertools.product(states, events)
]


@pytest.mark.parametrize(("table", "state", "event"), PAIRS, ids=lambda value: str(value)[:30])
def test_event_in_a_state_is_in_the_table_or_refused(table, state, event):
    if event in table[state]:
        assert advance(table, state, event) is table[state][event]
    else:
        with pytest.raises(LookupError, match=f"{event} in {state}"):
            advance(table, state, event)


@pytest.mark.parametrize(("table", "states", "events"), MACHINES, ids=["life", "lease", "write"])
def test_every_state_is_in_its_table_and_reached_and_every_event_is_used(table, states, events):
    assert set(table) == set(states)
    used = {event for row in table.values() for event in row}
    assert used == set(events)
    reached = {next(iter(states))}
    for _ in states:
        reached |= {after for state in reached for after in table[state].values()}
    assert reached == set(states)


@pytest.mark.parametrize("state", list(Life))
def test_every_life_can_end(state):
    states = {state}
    for _ in Life:
        states |= {after for each in states for after in LIFE[each].values()}
    assert states & {Life.LEFT, Life.RAN_OUT}
    assert not LIFE[Life.LEFT]
    assert not LIFE[Life.RAN_OUT]


def test_only_an_answer_leads_out_of_an_unsettled_write():
    """R1: neither a read, nor what the watch shows, nor time settles a write."""
    answers = {WriteEvent.ANSWERED, WriteEvent.FOREIGN, WriteEvent.MISSING}
    for state in (Write.SENT, Write.OWED):
        for event, after in WRITE[state].items():
            assert event in answers or after in (Write.SENT, Write.OWED)


def test_lease_that_is_given_up_never_comes_back_to_life():
    assert set(LEASE[LeaseState.REVOKING].values()) == {LeaseState.NONE}


def draw():
    spec = importlib.util.spec_from_file_location("draw_machines", DOCS / "draw_machines.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.page()


def test_page_shows_what_the_tables_say():
    assert (DOCS / "machines.md").read_text(encoding="utf-8") == draw(), "run `make docs`"
