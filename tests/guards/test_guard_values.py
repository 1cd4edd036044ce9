"""Test the arguments of guards, and what importing them imports."""

import gc
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

import rink.guards
from rink.errors import ConfigError
from rink.guards import Batch, Fence, processes
from rink.guards.processes import PerProcess


@pytest.mark.parametrize("token", [0, -1, 2**63, 1.0, "7", None, True])
def test_token_is_a_positive_number_of_64_bits(token):
    with pytest.raises(ConfigError, match="token"):
        Fence("flights", token)
    Fence("flights", 2**63 - 1)


@pytest.mark.parametrize("name", ["", None, 7, b"flights", "\ud800", "x" * 2001, "ü" * 400])
def test_fence_has_a_name(name):
    with pytest.raises(ConfigError, match="name"):
        Fence(name, 1)


@pytest.mark.parametrize("query", ["", None, "x" * 201, "ü" * 40])
def test_query_has_a_short_name(query):
    with pytest.raises(ConfigError, match="query"):
        Batch(query, 0, 1)


@pytest.mark.parametrize(
    ("number", "parts"), [(-1, 1), (2**63, 1), ("0", 1), (True, 1), (0, 0), (0, 10_001), (0, 2.0)]
)
def test_batch_has_a_number_and_parts(number, parts):
    with pytest.raises(ConfigError):
        Batch("q", number, parts)


def test_fence_is_made_of_what_has_a_name_and_a_token():
    assert Fence.of(SimpleNamespace(name="BTC/ETH", token=7)) == Fence("BTC/ETH", 7)
    with pytest.raises(ConfigError, match="give a role"):
        Fence.of("BTC/ETH")


def test_values_travel():
    for value in (Fence("a", 1), Batch("q", 0, 2)):
        assert pickle.loads(pickle.dumps(value)) == value


def test_importing_guards_brings_no_store():
    code = "import sys, rink.guards; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert {one.split(".")[0] for one in loaded} & {"redis", "sqlalchemy", "pyarrow"} == set()
    assert [one for one in loaded if one.startswith("rink.streams")] == []


def test_what_is_missing_is_named(monkeypatch):
    assert set(rink.guards.__all__) <= set(dir(rink.guards))
    with pytest.raises(AttributeError):
        _ = rink.guards.DeltaGuard
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for module in ("rink.guards.sql", "rink.guards.sql_database"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=r"rink\[sql\]"):
        _ = rink.guards.SqlGuard


def test_what_a_process_has_is_made_once_and_never_copied(monkeypatch):
    own, made = PerProcess(), []

    def make():
        made.append(threading.Lock())
        return made[-1]

    first = own.get(make)
    assert pickle.loads(pickle.dumps(own)).get(make) is first

    with monkeypatch.context() as in_a_child:
        in_a_child.setattr(processes.os, "getpid", lambda: -1)
        assert own.get(make) is not first
        assert own.take() is made[1]
        assert own.take() is None
    assert own.take() is first
    assert len(made) == 2


def test_what_a_process_has_ends_with_its_owner_and_a_copy_makes_its_own():
    class Owner:
        pass

    owner, own, made, ended = Owner(), PerProcess(), [], []
    own.ends_with(owner, ended.append)
    copy = pickle.loads(pickle.dumps(own))
    first = own.get(lambda: made.append(object()) or made[-1])
    del owner
    assert ended == [first]
    assert copy.get(object) is not first
    copy.take()


def test_owner_that_never_had_anything_ends_nothing():
    class Owner:
        pass

    owner, ended = Owner(), []
    PerProcess().ends_with(owner, ended.append)
    del owner
    assert ended == []


@pytest.mark.parametrize("made", ["parquet", "sql"])
def test_guards_that_are_made_and_forgotten_leave_nothing_in_the_process(made, tmp_path):
    gc.collect()  # Free the guards that earlier tests left in reference cycles.
    before = len(processes._made)
    for token in range(1, 9):
        guard = (
            rink.guards.ParquetGuard(tmp_path)
            if made == "parquet"
            else rink.guards.SqlGuard(f"sqlite:///{tmp_path}/data.db")
        )
        guard.raise_fence(rink.guards.Fence("q", token))
        assert len(processes._made) == before + 1
        del guard
    assert len(processes._made) == before
