"""Run contract and model on a SQLite file, and on a Parquet directory."""

import itertools

import pytest
from guards_contract import *  # noqa: F403
from guards_model import machine_of
from guards_worlds import ParquetWorld, SqliteWorld
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from rink.guards import parquet_log

WORLDS = [SqliteWorld, ParquetWorld]


@pytest.fixture(params=WORLDS)
def world(request, tmp_path):
    made = request.param(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", WORLDS)
def test_no_interleaving_differs_from_the_model(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(
        parquet_log, "FOLD_INTERVAL", 2
    )  # else no example would reach a volume's end
    monkeypatch.setattr(parquet_log, "VOLUME", 4)
    folders = itertools.count()

    def make():
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return kind(folder)

    bounds = settings(max_examples=25, stateful_step_count=12)
    run_state_machine_as_test(machine_of(make), settings=bounds)
