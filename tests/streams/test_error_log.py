"""Log a failure of many partitions with one traceback."""

import asyncio
import logging

import pytest
from jumping import jumping, pass_time

from rink.streams.consumer.error_log import ErrorLog


@pytest.fixture
def told(caplog):
    caplog.set_level(logging.INFO, "rink.streams")

    class Told:
        """The lines that were logged so far."""

        def __iter__(self):
            return iter(list(caplog.records))

        def __getitem__(self, index):
            return caplog.records[index]

        def __len__(self):
            return len(caplog.records)

    return Told()


def fail(kind=ValueError, what="odd"):
    try:
        raise kind(what)
    except kind as error:
        return error


@jumping
async def tell_all(error_log, errors, seconds=0):
    for role, error in errors:
        error_log.log(error, role, event="7-0")
    await pass_time(seconds)


def test_one_round_in_sixteen_partitions_is_one_traceback_and_one_line(told):
    tell_all(ErrorLog("bill"), [(f"orders/{n}", fail()) for n in range(16)], 2)
    first, rest = told
    assert first.getMessage() == "processor 'bill' failed in orders/0 at event 7-0: odd"
    assert first.exc_info
    assert rest.getMessage() == (
        "processor 'bill' failed 15 more times with the same error, in 15 partitions, the "
        "last time in orders/15 at event 7-0: ValueError: odd"
    )
    assert not rest.exc_info


def test_errors_of_another_class_or_place_have_their_own_traceback(told):
    def elsewhere():
        try:
            raise ValueError("odd")
        except ValueError as error:
            return error

    errors = [fail(), fail(KeyError), elsewhere(), ValueError("never raised")]
    tell_all(ErrorLog("bill"), [("orders/0", error) for error in errors], 2)
    assert [bool(one.exc_info) for one in told] == [True, True, True, True]


def test_error_that_goes_on_is_told_every_ten_seconds(told):
    @jumping
    async def run():
        error_log = ErrorLog("bill")
        for _ in range(100):
            error_log.log(fail(), "orders/0")
            await pass_time(1)
        error_log.close()

    run()
    counts = [int(one.getMessage().split()[3]) for one in told[1:]]
    assert sum(counts) == 99
    assert 9 <= len(counts) <= 12
    assert all(not one.exc_info for one in told[1:])


def test_error_that_comes_again_after_a_rest_has_a_traceback_again(told):
    @jumping
    async def run():
        error_log = ErrorLog("bill")
        for seconds in (30, 30, 301, 0):
            error_log.log(fail(), "orders/0")
            await pass_time(seconds)
        error_log.close()

    run()
    assert [bool(one.exc_info) for one in told] == [True, False, False, True]


def test_what_was_not_told_is_told_at_the_end(told):
    @jumping
    async def run():
        error_log = ErrorLog("bill")
        error_log.log(fail(), "orders/0")
        error_log.log(fail(), "orders/1")
        error_log.close()
        await pass_time(20)

    run()
    assert len(told) == 2


def test_error_that_cannot_be_shown_is_told_all_the_same(told):
    class OddError(Exception):
        def __str__(self):
            raise RuntimeError

    tell_all(ErrorLog("bill"), [("orders/0", fail(OddError)), ("orders/1", fail(OddError))], 2)
    assert "its __str__ raised RuntimeError" in told[1].getMessage()


@jumping
async def run_outage(seconds, back, ended=()):
    """Run an outage in three partitions.

    After it, the partitions `back` finish an event, and the partitions `ended` change hands.
    """
    error_log = ErrorLog("bill")
    roles = [f"orders/{n}" for n in range(3)]
    for role in roles:
        error_log.note_finished(role, 6)
        error_log.note_wait(role, 7)
        error_log.note_finished(role, 7)  # a commit of events that finished before the outage
    await pass_time(seconds)
    for n in ended:
        error_log.note_end(roles[n])
    for n in back:
        error_log.note_finished(roles[n], 8)


def test_outage_over_in_all_partitions_is_told_once(told):
    run_outage(30, back=[0, 1, 2])
    [line] = told
    assert line.getMessage() == (
        "processor 'bill' continues in all its partitions, after 30 s of transient errors"
    )


@pytest.mark.parametrize(
    ("seconds", "back", "ended"), [(30, [0, 1], []), (5, [0, 1, 2], []), (30, [], [0, 1, 2])]
)
def test_outage_that_goes_on_or_was_short_is_not_told_to_be_over(told, seconds, back, ended):
    run_outage(seconds, back=back, ended=ended)
    assert not list(told)


def test_outage_is_over_where_the_last_partition_has_another_owner(told):
    run_outage(30, back=[0, 1], ended=[2])
    assert len(told) == 1


def test_it_needs_no_loop_before_it_is_used():
    asyncio.run(_closes())


async def _closes():
    ErrorLog("bill").close()
