"""Test which loops are used: Numba's if it works, else NumPy's."""

from __future__ import annotations

import importlib
import sys

import numba
import numpy as np
import pytest

from rink.core.hashing import _JUMP_MULTIPLIER, jump_hash
from rink.spark.roles import loops_numba, loops_numpy, rank_arrays

NAMES = np.frombuffer(b"leaderBTC/ETHx", np.uint8)
STARTS, LENGTHS = np.array([0, 6, 13, 13, 6]), np.array([6, 7, 1, 0, 3])


@pytest.fixture(autouse=True)
def _asked_anew():
    rank_arrays.loops.cache_clear()
    yield
    rank_arrays.loops.cache_clear()


def test_numba_where_it_is_installed():
    assert rank_arrays.loops() is loops_numba


def test_numpy_where_it_is_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "rink.spark.roles.loops_numba")
    monkeypatch.delattr("rink.spark.roles.loops_numba")
    assert rank_arrays.loops() is loops_numpy


def test_numba_of_a_read_only_installation_keeps_nothing_on_disk(monkeypatch):
    compiled = []

    def njit(*, nogil, cache=False):
        if cache:
            raise RuntimeError("cannot cache function 'jump': no locator available for file")
        compiled.append(nogil)
        return lambda function: function

    try:
        with monkeypatch.context() as patch:
            patch.setattr(numba, "njit", njit)
            uncompiled = importlib.reload(loops_numba)
            with np.errstate(over="ignore"):
                keys = uncompiled.fnv1a64(NAMES, STARTS, LENGTHS)
                buckets = uncompiled.jump(keys, 64)
    finally:
        importlib.reload(loops_numba)
    assert compiled == [True, True]
    assert keys.tolist() == loops_numpy.fnv1a64(NAMES, STARTS, LENGTHS).tolist()
    assert buckets.tolist() == loops_numpy.jump(keys, 64).tolist()


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 15, 16, 17, 33])
def test_any_number_of_names(count):
    starts, lengths = np.arange(count) % 9, np.arange(count) % 5
    keys = loops_numpy.fnv1a64(NAMES, starts, lengths)
    assert loops_numba.fnv1a64(NAMES, starts, lengths).tolist() == keys.tolist()
    for size in (1, 2, 7, 2**31 - 1):
        assert loops_numba.jump(keys, size).tolist() == loops_numpy.jump(keys, size).tolist()


@pytest.mark.parametrize("loops", [loops_numpy, loops_numba])
@pytest.mark.parametrize("size", [1, 2, 64, 1 << 30])
def test_jump_that_lands_on_the_size_itself_has_gone_too_far(loops, size):
    """One key in 2**31 does; it is computed from where it must land."""
    landing = (2**31 // size - 1) << 33
    key = (landing - 1) * pow(_JUMP_MULTIPLIER, -1, 2**64) % 2**64
    keys = [key, *range(1, 33)]  # others among them continue
    found = loops.jump(np.array(keys, np.uint64), size).tolist()
    assert found == [jump_hash(one, size) for one in keys]
    assert found[0] == 0


@pytest.mark.parametrize("loops", [loops_numpy, loops_numba])
@pytest.mark.parametrize("size", [64, 65, 128])
def test_quotient_is_rounded_before_the_product(loops, size):
    """For this key, the other order would give another bucket.

    A search found the key; it differs at each of these sizes.
    """
    key = 0x1DE1DAC55A3D3513
    assert loops.jump(np.array([key], np.uint64), size).tolist() == [jump_hash(key, size)]
