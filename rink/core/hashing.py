"""Hash a role's name, and map the hash to one of n ranks, as Go Rink does.

Both functions must give exactly the numbers of Go Rink v2, or members written in the two languages
would disagree about owners. `tests/core/test_hashing.py` compares them on 6.4 million ranks that
Go Rink's packages computed. There is no cache here: a name costs 1-3 µs, and the callers know best
which ranks to keep.
"""

from __future__ import annotations

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_JUMP_MULTIPLIER = 2862933555777941757
_UINT64 = 0xFFFFFFFFFFFFFFFF
_TWO_TO_31 = 2147483648.0


def fnv1a64(name: str) -> int:
    """Return the 64-bit FNV-1a hash of a name's UTF-8 bytes.

    Source: Fowler, Noll, Vo; Go's `hash/fnv.New64a`. A lone surrogate has no UTF-8 form, and raises
    a UnicodeEncodeError.
    """
    # Local names, because the loop runs once per byte, and each global costs a dictionary look-up.
    prime, mask = _FNV_PRIME, _UINT64
    value = _FNV_OFFSET
    for byte in name.encode():
        value = (value ^ byte) * prime & mask
    return value


def jump_hash(key: int, size: int) -> int:
    """Return the bucket of a key, 0 to size - 1, by jump hash.

    The key is 0 to 2**64 - 1, and the size is 1 or more.

    If one bucket is added, 1 / (size + 1) of the keys move, all of them into the new bucket.

    Source: "A Fast, Minimal Memory, Consistent Hash Algorithm" (Lamping, Veach; 2014), in the
    arithmetic of Go's `github.com/dgryski/go-jump`. The quotient is computed first, in 64-bit
    floats, and the product is cut towards zero. The order matters, since floats round.
    """
    mask = _UINT64
    bucket = following = 0
    while following < size:
        bucket = following
        key = key * _JUMP_MULTIPLIER + 1 & mask
        following = int((bucket + 1) * (_TWO_TO_31 / ((key >> 33) + 1)))
    return bucket
