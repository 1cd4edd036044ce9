"""End tasks for certain, after they have cleaned up."""

import asyncio
import sys

import pytest
from jumping import jumping, pass_time

from rink._cancel import apart, end


async def started(coroutine):
    task = asyncio.create_task(coroutine)
    await pass_time(0)
    return task


@jumping
async def test_who_takes_a_cancellation_for_an_error_is_told_again_soon():
    taken = []

    async def read():
        while len(taken) < 3:
            try:
                await pass_time(1000)
            except asyncio.CancelledError:  # like a read from Redis that ends in the same moment
                taken.append(1)

    reading = await started(read())
    began = asyncio.get_running_loop().time()
    await end([reading])
    assert asyncio.get_running_loop().time() - began < 0.2
    assert len(taken) == 3


@jumping
async def test_who_is_cancelled_while_it_ends_others_ends_them_all_the_same():
    taken = []

    async def read():
        for _ in range(3):
            try:
                await pass_time(1000)
            except asyncio.CancelledError:
                taken.append(1)

    reading = await started(read())
    ending = await started(end([reading]))
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert len(taken) == 3


@jumping
@pytest.mark.parametrize("lasts_s", [0.1, 0.9])
async def test_users_code_has_its_time_to_put_things_in_order(lasts_s):
    ordered = []

    async def process():
        try:
            await pass_time(1000)
        finally:
            await pass_time(lasts_s)
            ordered.append(1)

    await end([await started(process())], again_s=1.0)
    assert ordered == [1]


@jumping
async def test_how_they_ended_is_somebody_elses_matter():
    async def fail():
        raise KeyError("told elsewhere")

    await end([await started(fail()), await started(pass_time(1000))])


def test_who_runs_code_apart_is_told_of_its_exit_and_not_of_the_loops_end():
    """Raise an exit in the caller first.

    asyncio lets SystemExit of any task out of its loop at once, and then cancels all tasks.
    """
    told = []

    async def leave():
        sys.exit(3)

    async def main():
        try:
            await apart(leave)
        except BaseException as error:
            told.append(type(error))
            raise

    with pytest.raises(SystemExit):
        asyncio.run(main())
    assert told == [SystemExit]


def test_exit_is_told_also_if_its_caller_is_cancelled_in_the_same_turn():
    async def main():
        this = asyncio.current_task()

        async def leave():
            asyncio.get_running_loop().call_soon(this.cancel)
            sys.exit(3)

        await apart(leave)

    with pytest.raises(SystemExit):
        asyncio.run(main())
