"""Compare the vectorised schemes with the scalar ones."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.core import schemes
from rink.core.hashing import fnv1a64, jump_hash
from rink.core.schemes import MAX_SIZE, rank_of
from rink.errors import ConfigError
from rink.spark.roles import loops_numba, loops_numpy, rank_arrays
from rink.spark.roles.rank_arrays import Spans, ranks

SIZES = range(1, 129)
SCHEMES = ["jump", "balanced:8", "first", "first:leader,x%2F7|balanced:8"]
LETTERS = "abcxyz0189/.-_% " + "äßñøΩж日本語🛷𐍈\u0000\u200d"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
odd = st.sampled_from(
    ["", "/", "x/0", "x/7", "x/8", "x/07", "x/٣", "a/b/3", "0", "x/-1", "ä/1", "/2"]
)
roles = st.one_of(texts, odd, st.just("x" * 200), st.none())


@pytest.fixture(scope="module", params=[loops_numpy, loops_numba], autouse=True)
def loops(request):
    """Run a test with NumPy, and with Numba."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_arrays, "loops", lambda: request.param)
        yield


def invent(count, seed=6):
    """Return names of 0 to 60 characters, also empty, non-ASCII and long ones."""
    chance = random.Random(seed)
    names = ["", "x" * 200, "日" * 66 + "ab", "leader", "BTC/ETH"]
    while len(names) < count:
        letters = LETTERS if len(names) % 4 == 0 else LETTERS[:16]
        length = 200 if len(names) % 500 == 0 else chance.randrange(60)
        names.append("".join(chance.choices(letters, k=length)))
    return names


@cache
def invented():
    """Return 20,000 names, their keys, and their scalar ranks at every size."""
    names = invent(20_000)
    keys = [fnv1a64(name) for name in names]
    return names, keys, [np.array([jump_hash(key, size) for key in keys]) for size in SIZES]


def test_20000_names_have_the_scalar_rank_at_every_size_from_1_to_128():
    names, keys, expected = invented()
    array = pa.array(names)
    hashed = rank_arrays.fnv1a64(Spans.of(array))
    assert hashed.tolist() == keys
    for size in SIZES:
        found = rank_arrays.jump(hashed, size)
        assert (found == expected[size - 1]).all(), size
    for size in (1, 2, 64, 128):
        assert ranks(array, size).to_pylist() == expected[size - 1].tolist()


@pytest.mark.parametrize("size", [129, 1000, 65_537, 10**6, MAX_SIZE - 1, MAX_SIZE])
def test_large_sizes_have_the_scalar_rank(size):
    names = invent(2000)
    assert ranks(pa.array(names), size).to_pylist() == [jump_hash(fnv1a64(n), size) for n in names]


def test_what_the_go_packages_give():
    assert ranks(pa.array(["test"]), 10).to_pylist() == [1]
    assert ranks(pa.array(["test"]), 5).to_pylist() == [1]
    assert ranks(pa.array([""]), 1).to_pylist() == [0]


def expected_ranks(names, size, scheme="jump"):
    return [None if name is None else rank_of(name, size, scheme) for name in names]


@st.composite
def shaped(draw):
    """Draw names, and an Arrow array of a kind that can hold them."""
    names = draw(st.lists(roles, max_size=30))
    kind = draw(st.sampled_from(["string", "large", "view", "dictionary", "sliced", "chunked"]))
    array = pa.array(names, pa.large_string() if kind == "large" else pa.string())
    if kind == "view":
        array = array.cast(pa.string_view())
    elif kind == "dictionary":
        array = array.dictionary_encode()
    elif kind == "sliced":
        front, length = draw(st.integers(0, 5)), draw(st.integers(0, 30))
        array, names = array[front : front + length], names[front : front + length]
    elif kind == "chunked":
        cut = draw(st.integers(0, 30))
        array = pa.chunked_array([array[:cut], array[cut:], array[:0]], array.type)
    return names, array


@given(shaped(), st.sampled_from([0, 1, 2, 7, 64, MAX_SIZE]), st.sampled_from(SCHEMES))
def test_any_array_has_the_scalar_ranks(given, size, scheme):
    names, array = given
    found = ranks(array, size, scheme)
    assert found.type == pa.int32()
    assert found.to_pylist() == expected_ranks(names, size, scheme)
    assert not isinstance(found, pa.ChunkedArray)


@given(st.lists(roles), st.integers(1, 12))
def test_blocks_change_nothing(names, block):
    before = rank_arrays.BLOCK
    rank_arrays.BLOCK = block
    try:
        assert ranks(pa.array(names, pa.string()), 5).to_pylist() == expected_ranks(names, 5)
    finally:
        rank_arrays.BLOCK = before


def test_many_names_of_one_length_and_many_of_different_ones():
    for names in ([f"{n:06d}" for n in range(500)], ["ab" * n for n in range(200)]):
        assert ranks(pa.array(names), 9).to_pylist() == expected_ranks(names, 9)


def test_one_very_long_name_among_short_ones():
    names = [f"job-{n}" for n in range(1000)] + ["y" * 200_000]
    assert ranks(pa.array(names), 64).to_pylist() == expected_ranks(names, 64)


def test_array_of_nulls_and_an_empty_one():
    assert ranks(pa.nulls(3), 5).to_pylist() == [None] * 3
    assert ranks(pa.array([], pa.string()), 5).to_pylist() == []
    assert ranks(pa.chunked_array([], pa.string()), 5).to_pylist() == []
    assert ranks(pa.array([None, ""], pa.string()), 0).to_pylist() == [None, None]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_names_that_come_as_bytes_have_the_ranks_of_the_strings(kind, custom):
    names = pa.array(["left out", "", "日本", None, "x" * 200, "BTC/ETH"])[1:]
    data = pa.array([None if name is None else name.encode() for name in names.to_pylist()], kind)
    longer = pa.concat_arrays([pa.array([b"another"], kind), data])
    for some in (data, longer[1:], data[:0]):
        wanted = names[: len(some)]
        assert rank_arrays.text(some).to_pylist() == wanted.to_pylist()
        for scheme in ("jump", "balanced:8", custom):
            assert ranks(rank_arrays.text(some), 7, scheme).equals(ranks(wanted, 7, scheme))


def test_nothing_that_was_given_is_changed():
    names = pa.array(["a", "bb", None, "ccc"])
    keys = np.arange(5, dtype=np.uint64)
    ranks(names, 7)
    rank_arrays.jump(keys, 7)
    assert names.to_pylist() == ["a", "bb", None, "ccc"]
    assert keys.tolist() == [0, 1, 2, 3, 4]


# ── balanced, custom ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("partitions", [1, 2, 8, 10, 11, 100, 101, 1000])
def test_balanced_partitions_have_the_scalar_rank(partitions):
    scheme = f"balanced:{partitions}"
    edge = [*range(12), partitions - 1, partitions, partitions + 1, 10 * partitions, 10**6, 10**9]
    names = [f"{head}/{k}" for head in ("orders", "", "ä/1") for k in edge]
    names += ["orders/00", "orders/01", "orders/1 ", "orders/+1", "orders/", "/", "7", "", "x/1\n"]
    names += ["orders/" + "9" * 30, "a/٣", "a/½", "0" * 9]
    for size in (1, 2, 3, 7, 64, 1500):
        assert ranks(pa.array(names), size, scheme).to_pylist() == expected_ranks(
            names, size, scheme
        )


def test_many_partitions_are_spread_evenly():
    names = pa.array([f"orders/{k}" for k in range(20_000)])
    counts = np.bincount(ranks(names, 7, "balanced:20000").to_numpy())
    assert counts.max() - counts.min() == 1


def by_length(role, size):
    return len(role) % size


@pytest.fixture
def custom(monkeypatch):
    monkeypatch.setattr(schemes, "_custom", {})
    return schemes.register(by_length, "length", 1)


def test_custom_scheme_is_asked_once_for_each_distinct_name(custom, monkeypatch):
    asked = []
    scheme = schemes.find(custom)
    monkeypatch.setattr(type(scheme), "rank", lambda self, role, size: asked.append(role) or 1)
    names = pa.array(["a", "bb", None, "a", "bb"])
    assert ranks(names, 4, custom).to_pylist() == [1, 1, None, 1, 1]
    assert sorted(asked) == ["a", "bb"]


def test_custom_scheme_gives_its_own_ranks(custom):
    names = [*invent(50), None]
    assert ranks(pa.array(names), 7, custom).to_pylist() == expected_ranks(names, 7, custom)


def test_custom_scheme_that_fails_says_for_which_role(custom, monkeypatch):
    monkeypatch.setitem(schemes._custom, custom, schemes._Custom(custom, lambda role, size: 9))
    with pytest.raises(schemes.SchemeFailed, match="returned 9 for role 'a'"):
        ranks(pa.array(["a"]), 3, custom)


def test_scheme_on_an_executor_is_not_taken_for_a_custom_one(monkeypatch):
    """A copy is another object; the scalar function is 60 times slower."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    monkeypatch.setattr(rank_arrays, "_custom", lambda *_: pytest.fail("by the scalar function"))
    for name in SCHEMES:
        copy = cloudpickle.loads(cloudpickle.dumps(schemes.find(name)))
        assert copy is not schemes.find(name) or name != "jump"
        assert ranks(pa.array(["x/3", "y"]), 5, copy).to_pylist() == expected_ranks(
            ["x/3", "y"], 5, name
        )


def test_first_asks_the_scheme_behind_it_for_the_other_roles_alone():
    def refuses_leader(role, size):
        if role == "my leader":
            raise ValueError(role)
        return size - 1

    name = f"first:my%20leader|{schemes.register(refuses_leader, 'refuses', 1)}"
    names = ["my leader", "a", None, "my leader", "b"]
    assert ranks(pa.array(names), 5, name).to_pylist() == [0, 4, None, 0, 4]
    assert ranks(pa.array(["my leader"]), 5, name).to_pylist() == [0]


# ── two sizes ────────────────────────────────────────────────────────────────────────────────────

sizes = st.sampled_from([0, 1, 2, 3, 7, 8, 64, MAX_SIZE])


@given(shaped(), sizes, sizes, st.sampled_from(SCHEMES))
def test_ranks_of_two_sizes_are_those_of_each(given, one, other, scheme):
    names, array = given
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    found = rank_arrays.both_ranks(array, one, other, schemes.find(scheme))
    assert [each.to_pylist() for each in found] == [
        expected_ranks(names, one, scheme),
        expected_ranks(names, other, scheme),
    ]


def test_two_sizes_of_many_names_over_many_blocks(monkeypatch):
    monkeypatch.setattr(rank_arrays, "BLOCK", 100)
    names = invent(1050)
    for one, other in ((64, 63), (5, 100), (128, 1)):
        found = rank_arrays.both_ranks(pa.array(names), one, other, schemes.JUMP)
        assert [each.to_pylist() for each in found] == [
            expected_ranks(names, one),
            expected_ranks(names, other),
        ]


# ── pins ─────────────────────────────────────────────────────────────────────────────────────────


@given(shaped(), st.dictionaries(st.one_of(texts, odd), st.integers(0, 4)))
def test_owners_are_those_of_pins_first(given, pins):
    names, array = given
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    pins |= dict.fromkeys([name for name in names[:2] if name is not None], 3)
    found = rank_arrays.owners(array, ranks(array, 5), pins)
    wanted = [-1 if name is None else pins.get(name, rank_of(name, 5)) for name in names]
    assert found.tolist() == wanted


# ── what cannot be used ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [-1, MAX_SIZE + 1, 1.0, "3", True, None])
def test_size_that_is_none(size):
    with pytest.raises(ConfigError, match="the size is"):
        ranks(pa.array(["a"]), size)


@pytest.mark.parametrize("values", [[1, 2], [b"a"], [["a"]], [1.5]])
def test_names_that_are_no_strings(values):
    with pytest.raises(ConfigError, match="roles must be strings, not"):
        ranks(pa.array(values), 3)


def test_scheme_that_is_unknown():
    with pytest.raises(schemes.UnknownScheme, match="'other' is not known here"):
        ranks(pa.array(["a"]), 3, "other")


def test_counts_are_those_of_each_code_for_few_cells_and_for_many():
    codes = np.array([3, 0, 3, 9], np.int64)
    assert (
        rank_arrays.counted(codes, 10)
        == [(0, 1), (3, 2), (9, 1)]
        == rank_arrays.counted(codes, 1 << 40)
    )
    assert rank_arrays.counted(codes[:0], 10) == []


def test_hashing_needs_no_pyspark():
    for module in (rank_arrays, loops_numpy, loops_numba):
        source = Path(module.__file__).read_text(encoding="utf-8")
        assert "import pyspark" not in source
        assert "from pyspark" not in source
