"""The hashes give the ranks that Go Rink gives."""

import functools
import gzip
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.core.hashing import fnv1a64, jump_hash
from rink.core.schemes import MAX_SIZE, rank_of

NAMES = 100_000
SIZES = 64

# The four below, the alphabets and `name_of` are those of golden/main.go.
FIXED = ("", "test", "leader", "BTC/ETH")
ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_./ ",
    "äöüßñçéøÅ日本語한국中文αβγЖщ🙂🚀🛷e\u0301\u00a0\u200d\x00\t\n/% 019",
)


def name_of(number):
    if number < len(FIXED):
        return FIXED[number]
    digest = hashlib.sha256(str(number).encode()).digest()
    if number % 100 == 0:
        return (digest.hex() * 4)[:200]
    alphabet = ALPHABETS[digest[0] % 2]
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[2 : 3 + digest[1] % 28])


@functools.cache
def names():
    return [name_of(number) for number in range(NAMES)]


@functools.cache
def golden():
    """Return the names' digest and 64 ranks of each, as golden/main.go wrote."""
    content = gzip.decompress((Path(__file__).parent / "golden" / "ranks.gz").read_bytes())
    return content[:32], content[32:]


def ranks_by_descent(role):
    """Return a role's ranks for the sizes 1 to 64, by about five calls.

    If the rank among n is r, it is r among r + 1 … n too. The loop in `jump_hash` passes through
    the same buckets whatever the size, and the size only says where it stops.
    """
    key, size, runs = fnv1a64(role), SIZES, []
    while size:
        rank = jump_hash(key, size)
        runs.append(bytes([rank]) * (size - rank))
        size = rank
    return b"".join(reversed(runs))


def test_go_and_python_make_the_same_names():
    digest = hashlib.sha256()
    for name in names():
        encoded = name.encode()
        digest.update(b"%d:%s" % (len(encoded), encoded))
    assert digest.digest() == golden()[0]
    assert len(set(names())) > 0.9 * NAMES


def test_each_of_the_6_400_000_ranks_is_that_of_go():
    """Compare every rank; those between two moves are inferred."""
    ranks = golden()[1]
    assert len(ranks) == NAMES * SIZES
    for number, name in enumerate(names()):
        assert ranks_by_descent(name) == ranks[number * SIZES : (number + 1) * SIZES], name


def test_580_000_ranks_asked_for_one_by_one_are_those_of_go():
    """Compare an eleventh of the names at every size, by the public function."""
    ranks = golden()[1]
    # 11 shares no factor with 100, so the 200-byte names are among them, in their proportion.
    for number in range(0, NAMES, 11):
        asked = bytes(rank_of(names()[number], size) for size in range(1, SIZES + 1))
        assert asked == ranks[number * SIZES : (number + 1) * SIZES], names()[number]


@pytest.mark.parametrize(
    ("role", "size", "rank"),
    [("test", 10, 1), ("test", 5, 1), ("", 1, 0), ("", 0, None)],
)
def test_vectors_of_go_rinks_own_tests(role, size, rank):
    """Where Go says -1, for no ranks at all, we say None."""
    assert rank_of(role, size) == rank


@pytest.mark.parametrize(
    ("role", "size", "rank"),
    [
        ("role-0", 100_000, 75_180),
        ("role-0", MAX_SIZE, 184_891_625),
        ("role-1", MAX_SIZE, 1_721_678_676),
        # The one name in 30 million whose rank shows in which order the floats are taken.
        ("role-19361890", MAX_SIZE, 1_947_592_953),
    ],
)
def test_sizes_that_no_group_has_are_ranked_as_in_go(role, size, rank):
    """Found by running Go's packages; the golden file stops at 64."""
    assert rank_of(role, size) == rank


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_fnv_gives_the_published_values(text, value):
    assert fnv1a64(text) == value


@given(key=st.integers(0, 2**64 - 1), size=st.integers(1, MAX_SIZE - 1))
def test_one_rank_more_moves_a_key_to_that_rank_or_not_at_all(key, size):
    before, after = jump_hash(key, size), jump_hash(key, size + 1)
    assert 0 <= before < size
    assert after in (before, size)
