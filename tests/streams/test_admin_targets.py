"""Change many partitions at once, and report errors in some of them."""

import asyncio

import pytest

from rink.errors import StateError
from rink.streams import RedisUnavailable
from rink.streams.admin.targets import MAX_REQUESTS, ProcessorPartition, change
from rink.streams.store.keys import Names
from rink.streams.store.values import PartitionBounds, PartitionPlace


def places(count):
    names = Names.of("shop", "orders")
    made = [
        PartitionPlace("orders", n, names.partition(n), "bill", PartitionBounds(9))
        for n in range(count)
    ]
    return [ProcessorPartition(None, place, {}, declared=True) for place in made]


def changed(count, answers):
    """Change partitions, of which each answers with its number.

    `answers` has other answers for some of them.
    """
    asked = []

    async def ask(found):
        number = found.place.number
        asked.append(number)
        answer = answers.get(number, number)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def body():
        return await change(ask, places(count))

    try:
        return asyncio.run(body()), asked
    except Exception as error:
        return error, asked


def test_only_what_was_changed_is_told():
    assert changed(4, {1: None})[0] == (0, 2, 3)


def test_error_keeps_no_other_from_it_and_says_so():
    error, asked = changed(40, {3: StateError("no"), 5: None, 20: StateError("nor this")})
    assert len(asked) == 40
    assert str(error) == "no"
    [note] = error.__notes__
    assert note.startswith("changed: bill orders/0, bill orders/1, bill orders/2, ")
    assert "maybe" not in note


def test_change_while_redis_is_away_sends_no_more_and_names_unsure_places():
    error, asked = changed(100, {0: RedisUnavailable("away")})
    assert len(asked) <= MAX_REQUESTS + 1
    assert error.__notes__[0].endswith("maybe changed: bill orders/0")
    error, _ = changed(1, {0: RedisUnavailable("away")})
    assert error.__notes__ == ["maybe changed: bill orders/0"]


@pytest.mark.parametrize("count", [0, 1])
def test_where_there_is_nothing_to_change_there_is_no_error(count):
    assert changed(count, {0: None})[0] == ()
