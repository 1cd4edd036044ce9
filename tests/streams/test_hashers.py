"""Use hashers of users, and refuse wrong ones before a send."""

import itertools
import zlib

import pytest

from rink.errors import ConfigError
from rink.streams import App, Record, RecordError, partition_of

CALLS = itertools.count()


class Move(Record):
    key: str
    n: int = 0


def by_crc(key):
    return zlib.crc32(key.encode())


@pytest.fixture
def declared():
    numbers = itertools.count()
    app = App("shop")

    def declare(hasher, **given):
        given = {"record": Move, "partition_by": "key", "partition_count": 4} | given
        return app.stream(f"moves-{next(numbers)}", hasher=hasher, **given)

    return declare


def test_hasher_gives_the_partition_modulo_the_count(declared):
    moves = declared(by_crc)
    assert moves.partition_of(Move(key="ann")) == by_crc("ann") % 4
    assert declared(lambda key: -1).partition_of(Move(key="ann")) == 3
    assert declared(lambda key: key == "A", partition_count=2).partition_of(Move(key="A")) == 1


def test_hasher_is_given_the_text_of_a_key(declared):
    moves = declared(int, partition_by="n")
    assert moves.partition_of(Move(key="x", n=6)) == 2


def test_stream_without_hasher_keeps_the_built_in_one(declared):
    plain = declared(None)
    assert plain.hasher == ""
    assert plain.partition_of(Move(key="ann")) == partition_of("ann", 4)


def test_fingerprint_is_of_what_the_hasher_gives(declared):
    made = declared(by_crc).hasher
    assert declared(lambda key: by_crc(key) % 4).hasher == made
    assert declared(lambda key: by_crc(key) + 1).hasher != made
    assert declared(by_crc, partition_count=8).hasher != made
    assert declared(int).hasher != declared(lambda key: -int(key)).hasher


@pytest.mark.parametrize(
    ("hasher", "told"),
    [
        (hash, "hash of a text differs in each process"),
        (lambda key: 1.5, "must return an int, and returned 1.5 for the key 'A'"),
        (lambda key: None, "None for the key 'A'"),
        (lambda key: "3", "'3' for the key 'A'"),
        (lambda: 1, "called as"),
        ("crc32", "not callable"),
        (zlib.crc32, "must take a text, and does not: a bytes-like object is required"),
        (lambda key: next(CALLS), "two partitions"),
    ],
)
def test_hasher_that_cannot_be_right_is_refused(declared, hasher, told):
    with pytest.raises(ConfigError, match=told):
        declared(hasher)


def test_async_hasher_is_refused(declared):
    async def slow(key):
        return 1

    with pytest.raises(ConfigError, match="is async"):
        declared(slow)


@pytest.mark.parametrize("key", ["seven", "\ud800"])
def test_hasher_that_fails_for_a_key_is_its_records_error(declared, key):
    with pytest.raises(RecordError, match="hasher gave no partition"):
        declared(int).partition_of(Move(key=key))


def test_hasher_that_gives_no_int_for_a_key_is_an_error(declared):
    moves = declared(lambda key: 0.5 if key == "odd" else 0)
    with pytest.raises(RecordError, match="hasher gave no partition for the key 'odd'"):
        moves.partition_of(Move(key="odd"))
