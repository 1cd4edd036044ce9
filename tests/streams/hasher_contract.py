"""Test that all programs agree on a hasher.

A program with another hasher is refused before it sends.
"""

import asyncio
import functools
import zlib

import pytest

from rink.errors import StateError
from rink.redis.partition_count import PartitionCount
from rink.streams import Record, Worker, admin, partition_of


class Move(Record):
    key: str
    n: int = 0


def first_letter(key):
    return 0 if key == "A" else 1


def by_crc(key):
    return zlib.crc32(key.encode())


def programs(test):
    """Give an async test what makes programs of one app on one Redis."""

    @functools.wraps(test)
    def run(servers):
        apps = []

        def program(hasher=None):
            app = servers.app("shop")
            apps.append(app)
            return app.stream(
                "moves", record=Move, partition_by="key", partition_count=2, hasher=hasher
            )

        async def body():
            try:
                async with servers.client() as redis:
                    await asyncio.wait_for(test(program, redis), 30)
            finally:
                for app in apps:
                    await app.close()

        servers.run(body())

    del run.__wrapped__  # pytest would ask for the arguments of that one
    return run


async def lengths(redis, moves):
    return [await redis.xlen(moves.names.partition(number).stream) for number in range(2)]


@programs
async def test_hasher_decides_where_records_lie(program, redis):
    moves = program(first_letter)
    await moves.send_many(Move(key=key) for key in "AABAAC")
    assert await lengths(redis, moves) == [4, 2]
    assert [event.record.key async for event in moves.read(1)] == ["B", "C"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(first_letter, by_crc), (first_letter, None), (None, first_letter)],
    ids=["another", "none", "one"],
)
def test_program_with_another_hasher_is_refused(first, second, servers):
    @programs
    async def body(program, redis):
        moves, other = program(first), program(second)
        await moves.send(Move(key="A"))
        before = await lengths(redis, moves)
        other.app.processor(other, name="count")(lambda events: None)
        for refused in (
            other.send(Move(key="A")),
            other.send_many([Move(key="A")]),
            Worker(other.app).run(),
            admin.lag(other.app),
        ):
            with pytest.raises(StateError, match="the same hasher= in all programs") as caught:
                await refused
            assert caught.value.key == moves.names.about
        assert await lengths(redis, moves) == before
        await program(first).send(Move(key="A"))

    body(servers)


@programs
async def test_two_programs_that_begin_at_once_agree_on_one_hasher(program, redis):
    hashers = [first_letter, by_crc, None]
    sent = await asyncio.gather(
        *(program(hasher).send(Move(key="B")) for hasher in hashers * 6), return_exceptions=True
    )
    refused = [isinstance(one, StateError) for one in sent]
    assert sum(refused) == 12, sent
    assert any(refused[at::3] == [False] * 6 for at in range(3))


@programs
async def test_later_program_settles_nothing_anew(program, redis):
    """A later program does not settle the hasher anew.

    It may have looked before the first program settled it.
    """
    moves = program(first_letter)
    for count, hasher in ((2, "first"), (3, "second"), (3, "")):
        await redis.execute_command(*PartitionCount(count, hasher).settle(moves.names.about).eval())
    found = await redis.hgetall(moves.names.about)
    assert found == {b"format": b"1", b"partitions": b"2", b"hasher": b"first"}


@programs
async def test_stream_without_hasher_has_no_field_for_it(program, redis):
    moves = program()
    await moves.send(Move(key="ann"))
    found = await redis.hgetall(moves.names.about)
    assert found == {b"format": b"1", b"partitions": b"2"}
    assert (await lengths(redis, moves))[partition_of("ann", 2)] == 1
