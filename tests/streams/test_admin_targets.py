"""Changing many partitions at once: what an error in one of them says of the others."""

import asyncio

import pytest

from rink.errors import StateError
from rink.streams import RedisUnavailable
from rink.streams.admin.targets import MAX_REQUESTS, Found, change
from rink.streams.store.keys import Names
from rink.streams.store.values import PartitionBounds, PartitionPlace


def places(count):
    names = Names.of("shop", "orders")
    made = [
        PartitionPlace("orders", n, names.partition(n), "bill", PartitionBounds(9))
        for n in range(count)
    ]
    return [Found(None, place, {}, declared=True) for place in made]


def changed(count, answers):
    """Change so many; what some answer is given, and the others answer with their number."""
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


def test_an_error_keeps_no_other_from_it_and_says_so():
    error, asked = changed(40, {3: StateError("no"), 5: None, 20: StateError("nor this")})
    assert len(asked) == 40
    assert str(error) == "no"
    [note] = error.__notes__
    assert note.startswith("it was done in bill orders/0, bill orders/1, bill orders/2, ")
    assert "maybe" not in note


def test_nobody_else_is_asked_once_redis_is_away_and_who_was_may_be_changed():
    error, asked = changed(100, {0: RedisUnavailable("away")})
    assert len(asked) <= MAX_REQUESTS + 1
    assert error.__notes__[0].endswith("but maybe in bill orders/0")
    error, _ = changed(1, {0: RedisUnavailable("away")})
    assert error.__notes__ == ["it was done nowhere, but maybe in bill orders/0"]


@pytest.mark.parametrize("count", [0, 1])
def test_where_there_is_nothing_to_change_there_is_no_error(count):
    assert changed(count, {0: None})[0] == ()
