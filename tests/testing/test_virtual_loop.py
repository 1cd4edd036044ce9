"""Test asyncio in virtual time, beside real engines."""

import asyncio
import contextlib
import threading
from asyncio import sleep as pass_time
from concurrent.futures import ThreadPoolExecutor

import pytest

import rink
from rink import aio
from rink.testing import virtual_clock


def test_sleep_moves_the_time_of_engines(rink_time):
    async def main():
        async with aio.Session(
            rink_time.cluster.client(), ttl=10, clock=rink_time.clock
        ) as session:
            one = await aio.Rink(session, "g", name="one", initial_delay=0).join()
            async with await one.await_role("leader") as role:
                before = rink_time.now()
                await pass_time(3600)  # the lease is renewed meanwhile
                assert rink_time.now() - before == 3600
                assert role.is_held

    rink_time.run(main())


def test_member_that_is_cut_off_hears_of_its_loss_in_the_loop(rink_time):
    async def main():
        async with aio.Session(
            rink_time.cluster.client(), ttl=60, clock=rink_time.clock
        ) as session:
            one = await aio.Rink(session, "g", name="one", initial_delay=0).join()
            async with await one.await_role("leader") as role:
                session.etcd.cut()
                before = asyncio.get_running_loop().time()
                await role.lost.wait()
                assert 40 < asyncio.get_running_loop().time() - before < 55
                session.etcd.heal()

    rink_time.run(main())


def test_time_stands_still_while_a_thread_of_the_executor_works(rink_time):
    begun, may_end = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert may_end.wait(20)
        return rink_time.now()

    async def main():
        job = asyncio.create_task(asyncio.to_thread(work))
        timer = asyncio.create_task(pass_time(5))
        helper = threading.Thread(target=lambda: (begun.wait(20), may_end.set()))
        helper.start()
        before = rink_time.now()
        assert await job == before
        assert not timer.done()
        await timer
        assert rink_time.now() == before + 5
        helper.join()

    rink_time.run(main())


def test_thread_of_the_executor_may_wait_by_the_clock(rink_time):
    """Such a thread moves the clock from one timer of the loop to the next."""
    seen = []

    async def ticks():
        while True:
            await pass_time(1)
            seen.append(rink_time.now())

    async def main():
        ticking = asyncio.create_task(ticks())
        await pass_time(0)
        await asyncio.to_thread(rink_time.advance, 3.5)
        ticking.cancel()

    begin = rink_time.now()
    rink_time.run(main())
    assert [at - begin for at in seen] == [1, 2, 3]


def test_time_waits_for_each_of_two_threads_of_the_executor(rink_time):
    """Neither thread moves the time beyond the end of the other's wait."""
    members = [rink.Rink(rink_time.session(), "g", scheme="first").join() for _ in range(2)]
    for member in members:
        member.wait_ranked()
    seen = []

    def serve(member):
        with contextlib.suppress(rink.ClosedError), member.await_role("leader") as role:
            while not role.lost.wait(1):
                seen.append(rink_time.now())

    async def main():
        serving = [asyncio.create_task(asyncio.to_thread(serve, member)) for member in members]
        await pass_time(30.5)
        for member in reversed(members):
            await asyncio.to_thread(member.leave)
        await asyncio.gather(*serving)

    begin = rink_time.now()
    rink_time.run(main())
    assert [at - begin for at in seen] == pytest.approx(range(1, 31))


def test_call_from_another_thread_waits_for_no_timer(rink_time):
    async def main():
        loop, before = asyncio.get_running_loop(), rink_time.now()
        called = loop.create_future()
        timer = asyncio.create_task(pass_time(1e9))
        # Until this call nothing else happens, since the executor's thread is at work.
        await asyncio.to_thread(loop.call_soon_threadsafe, called.set_result, "called")
        assert await called == "called"
        assert rink_time.now() == before
        timer.cancel()

    rink_time.run(main())


def test_blocking_call_in_a_coroutine_beside_a_thread_names_the_cause(rink_time, monkeypatch):
    session = rink_time.session()
    member = rink.Rink(session, "g").join()
    role = member.await_role("leader")

    def work():
        while not role.lost.wait(1):
            pass
        role.release()

    async def main():
        working = asyncio.create_task(asyncio.to_thread(work))
        await pass_time(5)
        session.etcd.cut()
        monkeypatch.setattr(virtual_clock, "BUSY_TIMEOUT_S", 0.5)
        try:
            with pytest.warns(RuntimeWarning, match="blocks the running asyncio loop"):
                member.leave()
        finally:
            await working

    with pytest.raises(TimeoutError, match=r"blocking call of Rink\? Make such a call by asyncio"):
        rink_time.run(main())


def test_timeout_ends_in_virtual_time(rink_time):
    async def main():
        before = rink_time.now()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 86_400)
        assert rink_time.now() - before == pytest.approx(86_400)

    rink_time.run(main())


def test_coroutine_may_move_the_time_beside_a_task_that_is_granted_a_role(rink_time):
    async def main():
        async with aio.Session(rink_time.cluster.client(), clock=rink_time.clock) as session:
            member = await aio.Rink(session, "g", name="one", initial_delay=10).join()
            waiting = asyncio.create_task(member.await_role("leader").__aenter__())
            await pass_time(0)
            rink_time.advance(20)
            (await waiting).release()

    rink_time.run(main())


def test_time_stands_still_while_the_executor_is_shut_down(rink_time):
    async def main():
        await asyncio.to_thread(int)
        timer = asyncio.create_task(pass_time(300))
        await asyncio.get_running_loop().shutdown_default_executor()
        assert rink_time.now() == begin
        timer.cancel()

    begin = rink_time.now()
    rink_time.run(main())


def test_job_that_cannot_be_started_holds_no_time_up(rink_time):
    async def main():
        loop, executor = asyncio.get_running_loop(), ThreadPoolExecutor(1)
        executor.shutdown()
        with pytest.raises(RuntimeError, match="after shutdown"):
            await loop.run_in_executor(executor, int)
        before = rink_time.now()
        await pass_time(1)
        assert rink_time.now() == before + 1

    rink_time.run(main())
