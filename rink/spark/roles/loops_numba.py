"""Compute FNV-1a and the jump hash over arrays, compiled by Numba.

Numba takes a third of NumPy's time. Each jump of a key needs the result of the previous jump. So
several keys jump in parallel: while a core would wait for one key, it computes another key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from rink.core import hashing

_OFFSET = np.uint64(hashing._FNV_OFFSET)  # noqa: SLF001 - the same numbers, written once
_PRIME = np.uint64(hashing._FNV_PRIME)  # noqa: SLF001
_MULTIPLIER = np.uint64(hashing._JUMP_MULTIPLIER)  # noqa: SLF001
_TWO_TO_31 = hashing._TWO_TO_31  # noqa: SLF001
_ONE, _BITS = np.uint64(1), np.uint64(33)
_LANES = 16
"""The number of keys that jump in parallel: four registers of four."""


def _compiled(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call, and cache it on disk if possible."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither __pycache__ nor the user's cache folder is writable
        return numba.njit(nogil=True)(function)


@_compiled
def fnv1a64(data: Any, starts: Any, lengths: Any) -> Any:
    """Return the hash of each name, as `loops_numpy.fnv1a64` does."""
    hashes = np.empty(len(starts), np.uint64)
    for i in range(len(starts)):
        begin = np.uint64(starts[i])  # unsigned, so that Numba checks no signs
        name_hash = _OFFSET
        for at in range(begin, begin + np.uint64(lengths[i])):
            name_hash = (name_hash ^ np.uint64(data[at])) * _PRIME
        hashes[i] = name_hash
    return hashes


@_compiled
def jump(keys: Any, size: int) -> Any:
    """Return the bucket of each key, as `loops_numpy.jump` does."""
    limit = np.float64(size)
    buckets = np.empty(len(keys), np.int32)
    key = np.empty(_LANES, np.uint64)
    bucket = np.empty(_LANES, np.float64)
    following = np.empty(_LANES, np.float64)
    for begin in range(0, len(keys), _LANES):
        count = min(_LANES, len(keys) - begin)
        for lane in range(_LANES):
            key[lane] = keys[begin + lane] if lane < count else _ONE
            bucket[lane] = following[lane] = 0.0
        going = True
        while going:
            going = False
            for lane in range(_LANES):  # no branches: nothing changes for a key that has arrived
                goes_on = following[lane] < limit
                bucket[lane] = np.floor(following[lane]) if goes_on else bucket[lane]
                key[lane] = key[lane] * _MULTIPLIER + _ONE
                # The value is below 2**31, so it may be read as signed, which converts faster.
                # Divide before multiplying, so that floats round as in the scalar loop.
                divisor = np.float64(np.int64(key[lane] >> _BITS)) + 1.0
                further = (bucket[lane] + 1.0) * (_TWO_TO_31 / divisor)
                following[lane] = further if goes_on else following[lane]
            for lane in range(_LANES):
                going |= following[lane] < limit
        for lane in range(count):
            buckets[begin + lane] = np.int32(bucket[lane])
    return buckets
