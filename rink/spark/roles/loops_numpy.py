"""Compute FNV-1a and the jump hash over arrays with NumPy, without Numba.

The loops run over byte positions and over jumps, never over names. Each step works only on the
names that still need it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rink.core import hashing

_MAX_SCALAR = 48
"""If at most this many names are still unfinished, the scalar loop hashes their rest faster."""

_OFFSET = np.uint64(hashing._FNV_OFFSET)  # noqa: SLF001 - the same numbers, written once
_PRIME = np.uint64(hashing._FNV_PRIME)  # noqa: SLF001
_MULTIPLIER = np.uint64(hashing._JUMP_MULTIPLIER)  # noqa: SLF001
_TWO_TO_31 = hashing._TWO_TO_31  # noqa: SLF001
_MASK = 0xFFFFFFFFFFFFFFFF


def fnv1a64(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the hash of each name; see `rink.core.hashing.fnv1a64`."""
    values = np.full(len(starts), _OFFSET)
    if not len(starts):
        return values
    shortest, longest = int(lengths.min()), int(lengths.max())
    at = starts.copy()
    order = None
    if shortest != longest:
        # Sort the longest names first. Then the unfinished names stand first at every position.
        # NumPy sorts 16-bit values faster, by radix.
        narrow = np.int16 if longest < 1 << 15 else np.int64
        order = np.argsort((-lengths).astype(narrow), kind="stable")
        at, lengths = at[order], lengths[order]
    hashed = values
    below = -lengths  # ascending, for searchsorted
    longer = len(starts)
    for position in range(longest):
        if position >= shortest:
            longer = int(np.searchsorted(below, -position))
            if longer <= _MAX_SCALAR:
                _finish(data, at, lengths, position, hashed, longer)
                break
        part = hashed[:longer]
        part ^= data[at[:longer]]
        part *= _PRIME
        at[:longer] += 1
    if order is None:
        return hashed
    values = np.empty_like(hashed)
    values[order] = hashed
    return values


def _finish(
    data: NDArray[np.uint8],
    at: NDArray[np.int64],
    lengths: NDArray[np.int64],
    position: int,
    hashed: NDArray[np.uint64],
    longer: int,
) -> None:
    """Hash the rest of the first names in place, one by one.

    A single long name must not cost a NumPy call for each of its bytes.
    """
    prime = hashing._FNV_PRIME  # noqa: SLF001
    for index in range(longer):
        value, start = int(hashed[index]), int(at[index])
        for byte in data[start : start + int(lengths[index]) - position].tobytes():
            value = (value ^ byte) * prime & _MASK
        hashed[index] = value


def jump(keys: NDArray[np.uint64], size: int) -> NDArray[np.int32]:
    """Return the bucket of each key for a size of 1 to 2**31 - 1."""
    buckets = np.zeros(len(keys), np.int32)
    which: NDArray[np.int64] | None = None
    factor: NDArray[np.float64] | float = 1.0
    while len(keys):
        keys = keys * _MULTIPLIER
        keys += np.uint64(1)
        # The value is below 2**31, so it may be read as signed, which converts faster.
        divisor = (keys >> np.uint64(33)).view(np.int64).astype(np.float64)
        divisor += 1.0
        # Divide before multiplying, so that floats round as in the scalar loop. The product is
        # below the size exactly if its integer part is. So truncate only the keys that jump again.
        following: NDArray[np.float64] = _TWO_TO_31 / divisor
        following *= factor
        again = np.flatnonzero(following < size)
        keys = keys[again]
        bucket = following[again].astype(np.int32)
        which = again if which is None else which[again]
        buckets[which] = bucket
        factor = bucket.astype(np.float64) + 1.0
    return buckets
