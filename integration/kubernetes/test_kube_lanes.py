"""Test rows of the table that run side by side, and alone."""

import threading
import time

import attrs
import lanes
import pytest
from lanes import Lanes
from scenarios import SCENARIOS

ROW = SCENARIOS[0]


@pytest.mark.timeout(60)
def test_row_that_runs_alone_begins_after_all_others(monkeypatch):
    """The others end once each row has a thread."""
    order = []
    all_have_threads = threading.Event()

    def carry_out(_cluster, row, _etcd):
        if not row.runs_alone:
            all_have_threads.wait()
        order.append(row.name)
        return row.name

    monkeypatch.setattr(lanes, "carry_out", carry_out)
    monkeypatch.setattr(lanes, "judged", lambda _row, history: history)
    monkeypatch.setattr(Lanes, "_etcd", lambda _self, _row: None)
    names = {"first alone": True, "second alone": True, "one": False, "other": False}
    rows = [attrs.evolve(ROW, name=name, runs_alone=alone) for name, alone in names.items()]
    with Lanes(None, len(rows)) as running:
        verdicts = running.submit(rows)
        while not all(one.running() or one.done() for one in verdicts.values()):
            time.sleep(0.001)
        all_have_threads.set()
        assert {name: one.result() for name, one in verdicts.items()} == {n: n for n in names}
    assert set(order[:2]) == {"one", "other"}
    assert order[2:] == ["first alone", "second alone"]
