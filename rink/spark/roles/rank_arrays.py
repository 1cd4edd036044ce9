"""Compute the ranks of many names at once, over Arrow arrays.

Every function here computes exactly the ranks of the scalar schemes in `rink.core.schemes`, for
every name and size. Otherwise a role could have two owners. `tests/spark/test_roles_hashing.py`
compares them.

Names never become Python strings, except for custom schemes. `loops_numpy` or `loops_numba` hash
the UTF-8 bytes in Arrow's buffers. The arrays of a block of `BLOCK` names fit into the cache.

This module runs on executors and anywhere else, so it does not import PySpark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rink.core import schemes
from rink.core.schemes import JUMP, MAX_SIZE, First, Scheme
from rink.errors import ConfigError

NameArray: TypeAlias = Any
"""A pyarrow Array or ChunkedArray of strings. pyarrow has no types that mypy can read."""

Hashes: TypeAlias = NDArray[np.uint64]
Ranks: TypeAlias = NDArray[np.int32]

BLOCK = 1 << 14
"""The number of names hashed together. About ten arrays of this length fit into a core's cache."""

NOBODY = -1
"""The value for no rank and no owner in NumPy arrays. In Arrow arrays it is null."""

_ZERO, _NINE, _SLASH = 0x30, 0x39, 0x2F


@attrs.frozen
class Spans:
    """Locate names: name i is `lengths[i]` bytes of `data` from `starts[i]`."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, names: NameArray) -> Spans:
        """Return the spans of a string array; only offsets are copied."""
        wide = pa.types.is_large_string(names.type)
        _, offsets, data = names.buffers()
        buffer = np.frombuffer(offsets, np.int64 if wide else np.int32)
        bounds = buffer[names.offset : names.offset + len(names) + 1].astype(np.int64)
        data_bytes = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        return cls(data_bytes, bounds[:-1], np.diff(bounds))

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def blocks(cls, names: NameArray) -> Iterator[tuple[slice, Spans]]:
        """Yield the spans of a string array in order, `BLOCK` names at a time."""
        for start in range(0, len(names), BLOCK):
            block = names.slice(start, BLOCK)
            yield slice(start, start + len(block)), cls.of(block)


# ── arrays of names ──────────────────────────────────────────────────────────────────────────────


def ranks(names: NameArray, size: int, scheme: str | Scheme = "jump") -> Any:
    """Return the ranks of names, the same as `rink.rank_of` of each name.

    Args:
        names: a pyarrow Array or ChunkedArray of string, large_string, string_view, or a dictionary
            of these; also sliced, and with nulls.
        size: the number of ranks, 0 to 2**31 - 1.
        scheme: a scheme's name, or the scheme that `rink.core.schemes.find` returns for it.

    Returns:
        A pyarrow int32 Array of the same length. A rank is null if the name is null or size is 0.

    Raises:
        ConfigError: the names are not strings, or the size is out of range.
        UnknownScheme: there is no such scheme in this process.
        SchemeFailed: a custom scheme's function raised, or returned no valid rank.
    """
    check_size(size)
    its_scheme = schemes.find(scheme) if isinstance(scheme, str) else scheme
    return _ranks(names, size, its_scheme)


def _ranks(names: NameArray, size: int, scheme: Scheme) -> Any:
    if isinstance(names, pa.ChunkedArray):
        chunks = [_ranks(chunk, size, scheme) for chunk in names.chunks]
        return pa.concat_arrays(chunks) if chunks else pa.array([], pa.int32())
    if pa.types.is_dictionary(names.type):
        return _ranks(names.dictionary, size, scheme).take(names.indices)
    names = plain(names)
    if size == 0:
        return pa.nulls(len(names), pa.int32())
    if isinstance(scheme, First):
        return _first(names, size, scheme)
    # Compare names, not objects, since executors have copies of the scheme.
    kind, _, partitions = scheme.name.partition(":")
    if kind not in {"jump", "balanced"}:
        return _custom(names, size, scheme)
    result = np.empty(len(names), np.int32)
    for part, block in Spans.blocks(names):
        if partitions:
            result[part] = _balanced(block, size, int(partitions))
        else:
            result[part] = jump(fnv1a64(block), size)
    return pa.array(result, mask=nulls(names))


def plain(names: NameArray) -> Any:
    """Return names as a string or large_string Array, or raise ConfigError."""
    if pa.types.is_string(names.type) or pa.types.is_large_string(names.type):
        return names
    if pa.types.is_string_view(names.type):
        return names.cast(pa.large_string())
    if pa.types.is_null(names.type):
        return names.cast(pa.string())
    raise ConfigError(f"roles must be strings, not {names.type}: cast them first")


def text(data: Any) -> Any:
    """Return a binary array as strings, without a check or a copy."""
    kind = pa.large_string() if pa.types.is_large_binary(data.type) else pa.string()
    return pa.Array.from_buffers(kind, len(data), data.buffers(), data.null_count, data.offset)


def nulls(names: NameArray) -> NDArray[np.bool_] | None:
    """Return a mask of the null names, or None without null names."""
    if names.null_count == 0:
        return None
    mask: NDArray[np.bool_] = names.is_null().to_numpy(zero_copy_only=False)
    return mask


def check_size(size: int) -> None:
    """Raise ConfigError unless `size` is a number of ranks."""
    if isinstance(size, bool) or not isinstance(size, int):
        raise ConfigError(f"the size is an int, not {type(size).__name__}: {size!r}")
    if not 0 <= size <= MAX_SIZE:
        raise ConfigError(f"the size is 0 to {MAX_SIZE}, not {size}")


def both_ranks(names: NameArray, size: int, other: int, scheme: Scheme) -> tuple[Any, Any]:
    """Return the ranks of names for two sizes by one scheme.

    For jump, this takes little more time than for one size. With more buckets, a key stays or goes
    to a new bucket. So a key keeps its rank for the larger size, unless that rank is too large for
    the smaller size. Only such keys are computed again. `names` is no ChunkedArray.
    """
    if size == other:
        result = _ranks(names, size, scheme)
        return result, result
    if scheme.name != JUMP.name or not (size and other) or pa.types.is_dictionary(names.type):
        return _ranks(names, size, scheme), _ranks(names, other, scheme)
    names = plain(names)
    larger = np.empty(len(names), np.int32)
    smaller = np.empty(len(names), np.int32)
    least = min(size, other)
    for part, block in Spans.blocks(names):
        keys = fnv1a64(block)
        ranked = larger[part] = jump(keys, max(size, other))
        beyond = np.flatnonzero(ranked >= least)
        smaller[part] = ranked
        smaller[part][beyond] = jump(keys[beyond], least)
    mask = nulls(names)
    pair = (pa.array(smaller, mask=mask), pa.array(larger, mask=mask))
    return pair if size == least else (pair[1], pair[0])


def owners(names: NameArray, ranks: Any, pins: Mapping[str, int]) -> Ranks:
    """Return the ranks of the names' owners: by the pins, else by the scheme.

    A rank is `NOBODY` if the name is null or size is 0. `names` is no ChunkedArray, `ranks` holds
    the names' ranks by the scheme, and `pins` maps each pinned role to a ranked member's rank.
    """
    ranked: Ranks = ranks.fill_null(NOBODY).to_numpy(zero_copy_only=False)
    if not pins or not len(ranked):
        return ranked
    if pa.types.is_dictionary(names.type):
        names = names.cast(names.type.value_type)
    names = plain(names)
    index = pc.index_in(names, value_set=pa.array(list(pins), names.type))
    index = index.fill_null(NOBODY).to_numpy(zero_copy_only=False)
    if (index == NOBODY).all():
        return ranked
    return np.where(index == NOBODY, ranked, np.array(list(pins.values()), np.int32)[index])


def _first(names: NameArray, size: int, scheme: First) -> Any:
    """Return rank 0 for the roles of `first`; its scheme ranks the others."""
    result = np.zeros(len(names), np.int32)
    if scheme.roles is not None:
        listed = pc.is_in(names, value_set=pa.array(sorted(scheme.roles), names.type))
        others = np.flatnonzero(~listed.to_numpy(zero_copy_only=False))
        # Rank only the other roles: a function after `|` need not accept the listed roles.
        ranked = _ranks(names.take(pa.array(others)), size, scheme.rest)
        result[others] = ranked.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(result, mask=nulls(names))


def _custom(names: NameArray, size: int, scheme: Scheme) -> Any:
    """Return ranks by a user's function, called once for each distinct name."""
    distinct = names.dictionary_encode()
    each = [scheme.rank(name, size) for name in distinct.dictionary.to_pylist()]
    return pa.array(each, pa.int32()).take(distinct.indices)


# ── the arithmetic ───────────────────────────────────────────────────────────────────────────────


def fnv1a64(spans: Spans) -> Hashes:
    """Return the FNV-1a hash of each name; see `rink.core.hashing.fnv1a64`."""
    hashes: Hashes = loops().fnv1a64(spans.data, spans.starts, spans.lengths)
    return hashes


def jump(keys: Hashes, size: int) -> Ranks:
    """Return the jump hash of each key; see `rink.core.hashing.jump_hash`."""
    buckets: Ranks = loops().jump(keys, size)
    return buckets


@lru_cache(maxsize=1)
def loops() -> ModuleType:
    """Return the module of both loops, compiled by Numba or else for NumPy.

    Both modules compute the same results.
    """
    try:
        from rink.spark.roles import loops_numba
    except ImportError:
        from rink.spark.roles import loops_numpy

        return loops_numpy
    return loops_numba


def _balanced(spans: Spans, size: int, partitions: int) -> Ranks:
    """Return the ranks by `balanced:P`: `…/k` by a table, others by jump."""
    number = partition_numbers(spans, partitions)
    others = np.flatnonzero(number == NOBODY)
    result: Ranks = _table(partitions, size)[number]  # ranks without a number are replaced below
    if len(others):
        names = Spans(spans.data, spans.starts[others], spans.lengths[others])
        result[others] = jump(fnv1a64(names), size)
    return result


def partition_numbers(spans: Spans, partitions: int) -> NDArray[np.int64]:
    """Return k for each name `…/k` with k < `partitions`, else `NOBODY`.

    k has no leading zeros. All names are read at once, from the last byte backwards.
    """
    number = np.full(len(spans), NOBODY, np.int64)
    if not len(spans.data):
        return number
    value = np.zeros(len(spans), np.int64)
    first = np.zeros(len(spans), np.int64)  # the leading digit so far
    reading = np.ones(len(spans), np.bool_)
    ends = spans.starts + spans.lengths
    for digits in range(len(str(partitions - 1)) + 1):
        reading &= spans.lengths > digits
        byte = spans.data[np.maximum(ends - digits - 1, 0)].astype(np.int64)
        if digits:
            canonical = first != 0 if digits > 1 else True
            is_whole = reading & (byte == _SLASH) & canonical & (value < partitions)
            number = np.where(is_whole, value, number)
        reading &= (byte >= _ZERO) & (byte <= _NINE)
        first = np.where(reading, byte - _ZERO, first)
        value = np.where(reading, value + first * 10**digits, value)
    return number


@lru_cache(maxsize=8)
def _table(partitions: int, size: int) -> Ranks:
    """Return the rank of every partition, in at most 400 kB and 0.2 s."""
    scheme = schemes.find(f"balanced:{partitions}")
    return np.array([scheme.rank(f"/{k}", size) for k in range(partitions)], np.int32)


def counted(codes: NDArray[np.int64], cells: int) -> Sequence[tuple[int, int]]:
    """Count each code, 0 ≤ code < cells; return (code, count) pairs."""
    if cells <= 1 << 16:
        counts = np.bincount(codes, minlength=0)
        which = np.flatnonzero(counts)
        counts = counts[which]
    else:
        which, counts = np.unique(codes, return_counts=True)
    return list(zip(which.tolist(), counts.tolist(), strict=True))
