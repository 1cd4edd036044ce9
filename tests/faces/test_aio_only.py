"""Check cancellation and event loops, which only asyncio's face has."""

import asyncio
import contextlib
import sys

import pytest
from faces_support import LONG_S, QUICK, TTL_S, owned_by, within

import rink
from rink import aio
from rink._asyncio import in_loop, wait_in_loop
from rink.base_rink import Subscription
from rink.core.holds import made_by
from rink.testing.memory.cluster import MemoryCluster
from rink.testing.virtual import virtual_time


@contextlib.asynccontextmanager
async def member(cluster, name="a", *, ttl=TTL_S, **settings):
    """A ranked member with a session of its own."""
    async with (
        aio.Session(cluster.client(), ttl=ttl) as session,
        aio.Rink(session, "g", name=name, **{**QUICK, **settings}) as joined,
    ):
        await changed(joined, lambda: joined.rank is not None)
        yield joined


@contextlib.asynccontextmanager
async def pair(cluster, **settings):
    async with member(cluster, "a", **settings) as a, member(cluster, "b", **settings) as b:
        await changed(a, lambda: a.size == 2)  # settled is what a view says; a's may be behind
        assert await a.wait_settled(LONG_S)
        assert await b.wait_settled(LONG_S)
        yield a, b


def run(scenario):
    """Run a scenario on a cluster of its own."""
    with MemoryCluster() as cluster:
        asyncio.run(asyncio.wait_for(scenario(cluster), 3 * LONG_S))


async def changed(r, happens):
    """Wait, from step to step, until something is true."""
    async with asyncio.timeout(LONG_S), aio._changes(r._opened) as steps:
        while not happens():
            await steps.wait()
            steps.clear()


def test_cancelling_a_wait_withdraws_it():
    async def scenario(cluster):
        async with pair(cluster) as (a, b):
            waiting = asyncio.create_task(_wait_for(a, owned_by(1, 2)))
            await changed(a, lambda: a.status().waiting_for)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert a.status().waiting_for == {}
            await b.leave()
            await changed(a, lambda: a.can_take(owned_by(1, 2)))
            assert a.status().held == {}

    run(scenario)


async def _wait_for(r, name):
    return await r.await_role(name)


def test_grant_that_races_with_a_cancellation_is_let_go():
    async def scenario(cluster):
        async with pair(cluster) as (a, b):
            names = owned_by(1, 2, 50)
            waits = [asyncio.create_task(_wait_for(a, name)) for name in names]
            await changed(a, lambda: len(a.status().waiting_for) == 50)
            b._begin_leave()
            with Subscription(a._opened) as steps:  # the loop is blocked: no task runs meanwhile
                while len(a.status().held) < 50:
                    steps.wait(LONG_S)
            for wait in waits:
                wait.cancel()
            ended = await asyncio.gather(*waits, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            assert (a.status().held, a.status().waiting_for) == ({}, {})

    run(scenario)


def test_cancelling_a_join_leaves_no_record():
    async def scenario(cluster):
        async with member(cluster, "a"), aio.Session(cluster.client(), ttl=5) as session:
            other = aio.Rink(session, "g", name="a")
            joining = asyncio.create_task(other.join())
            await asyncio.sleep(0)
            await changed(other, lambda: other.status().last_error)
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining
            await wait_in_loop(other._opened.left, LONG_S)
            assert (
                cluster.store.time_to_live(other._opened.node.member_lease.id, cluster.now()) == -1
            )

    run(scenario)


def test_loss_cancels_the_body_and_ends_there():
    async def scenario(cluster):
        async with member(cluster) as a:
            reached = []
            name = owned_by(1, 2)
            async with contextlib.AsyncExitStack() as stack:
                async with a.await_role(name, LONG_S) as role:
                    await stack.enter_async_context(member(cluster, "b"))
                    await asyncio.sleep(LONG_S)
                    reached.append("the end of the body")
                assert role.lost.is_set()
                assert not role.is_held
                assert not reached
                assert asyncio.current_task().cancelling() == 0
                await asyncio.sleep(0)  # the task goes on as if nothing had been

    run(scenario)


def test_role_that_was_got_cancels_its_body_too():
    async def scenario(cluster):
        async with member(cluster) as a:
            assert await a.wait_settled(LONG_S)
            async with a.get_role(owned_by(1, 2)) as role:
                joining = asyncio.create_task(_hold_member(cluster, "b"))
                await asyncio.sleep(LONG_S)
            assert role.lost.is_set()
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    run(scenario)


async def _hold_member(cluster, name):
    async with member(cluster, name):
        await asyncio.sleep(LONG_S)


def test_loss_between_two_bodies_cancels_each_of_them():
    async def scenario(cluster):
        async with member(cluster) as a:
            one, two = owned_by(1, 2, 2)
            steps = []
            joining = None
            async with a.await_role(one, LONG_S):
                async with a.await_role(two, LONG_S):
                    joining = asyncio.create_task(_hold_member(cluster, "b"))
                    try:
                        await asyncio.sleep(LONG_S)
                    finally:
                        steps.append("inner cancelled")
                steps.append("between")
                await asyncio.sleep(LONG_S)
                steps.append("never")
            assert steps[0] == "inner cancelled"
            assert "never" not in steps
            assert asyncio.current_task().cancelling() == 0
            assert a.status().draining == ()
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)

    run(scenario)


def test_cancellation_from_outside_passes_through():
    async def scenario(cluster):
        async with member(cluster) as a:
            inside = asyncio.Event()

            async def body():
                async with a.await_role("x", LONG_S):
                    inside.set()
                    await asyncio.sleep(LONG_S)

            task = asyncio.create_task(body())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert a.status().held == {}

    run(scenario)


def test_outer_cancellation_passes_through_a_body_that_loses_its_role():
    async def scenario(cluster):
        async with member(cluster) as a:
            inside = asyncio.Event()

            async def body():
                async with a.await_role("x", LONG_S) as role:
                    inside.set()
                    try:
                        await asyncio.sleep(LONG_S)
                    finally:
                        await _lose(role)  # at this very moment

            task = asyncio.create_task(body())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(scenario)


def test_timeout_around_the_body_and_one_within_it_work():
    async def scenario(cluster):
        async with member(cluster) as a:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02), a.await_role("x", LONG_S):
                    await asyncio.sleep(LONG_S)
            async with a.await_role("x", LONG_S) as role:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await asyncio.sleep(LONG_S)
                assert role.is_held
            async with asyncio.timeout(LONG_S):
                async with a.await_role("x", LONG_S) as role:
                    await _lose(role)
                    await asyncio.sleep(LONG_S)
            assert asyncio.current_task().cancelling() == 0

    run(scenario)


def test_error_of_the_body_passes_through():
    async def scenario(cluster):
        async with member(cluster) as a:
            with pytest.raises(ZeroDivisionError):
                async with a.await_role("x", LONG_S):
                    raise ZeroDivisionError
            assert a.status().held == {}

    run(scenario)


def test_task_group_in_the_body_is_cancelled_with_it():
    async def scenario(cluster):
        async with member(cluster) as a:
            ended = []

            async def part():
                try:
                    await asyncio.sleep(LONG_S)
                finally:
                    ended.append(True)

            async with a.await_role("x", LONG_S) as role, asyncio.TaskGroup() as group:
                group.create_task(part())
                group.create_task(part())
                await asyncio.sleep(0)
                await _lose(role)
            assert ended == [True, True]

    run(scenario)


async def _lose(role):
    """Set the signal as the engine does, on a thread of its own."""
    await asyncio.to_thread(role._signal().set)


def test_leaving_from_inside_a_roles_own_body_is_bounded():
    async def scenario(cluster):
        async with pair(cluster, leave_timeout=0.3) as (a, _):
            with within(10.0):
                async with a.await_role(owned_by(0, 2), LONG_S) as role:
                    await a.leave()
                assert role.lost.is_set()
                assert await wait_in_loop(a._opened.left, LONG_S)

    run(scenario)


def test_leaving_from_inside_a_role_sets_own_with_is_bounded():
    async def scenario(cluster):
        async with pair(cluster, leave_timeout=0.3) as (a, _):
            with within(10.0):
                async with a.roles([owned_by(0, 2)]) as roles:
                    async for change in roles:
                        assert change.gained
                        await a.leave()
                        break

    run(scenario)


def test_role_that_is_only_awaited_does_not_cancel_whoever_holds_it():
    async def scenario(cluster):
        async with member(cluster) as a:
            role = await a.await_role(owned_by(1, 2), LONG_S)
            async with member(cluster, "b") as b:
                assert await role.lost.wait(LONG_S)
                role.release()
                (await b.await_role(role.name, LONG_S)).release()

    run(scenario)


def test_loop_that_is_blocked_for_longer_than_the_ttl_keeps_its_roles():
    async def scenario(time):
        async def meanwhile(waits):
            done, _ = await asyncio.gather(waits, asyncio.to_thread(time.advance, 1.0))
            return done

        session = aio.Session(time.cluster.client(), ttl=5, clock=time.clock)
        a = aio.Rink(session, "g", name="a", **QUICK)
        await meanwhile(a.join())
        role = await meanwhile(a.await_role("x"))
        time.advance(60.0)  # the loop is blocked meanwhile; the engine has a thread of its own
        assert role.is_held
        await asyncio.sleep(0)
        assert not role.lost.is_set()
        role.release()
        await meanwhile(session.close())

    with virtual_time() as time:
        asyncio.run(asyncio.wait_for(scenario(time), 3 * LONG_S))


def test_loop_that_was_closed_harms_nobody(caplog):
    with MemoryCluster() as cluster:
        session = aio.Session(cluster.client(), ttl=TTL_S)
        a = aio.Rink(session, "g", name="a", **QUICK)

        async def begin():
            await a.join()
            role = await a.await_role("x", LONG_S)
            waits = asyncio.ensure_future(role.lost.wait())
            following = asyncio.ensure_future(anext(aiter(a.versions())))
            await following
            await asyncio.sleep(0)
            waits.cancel()
            role._signal().then(in_loop(lambda: None))  # called when its loop is gone
            return role

        role = asyncio.run(begin())
        assert role.is_held
        asyncio.run(_leave(a, role))
        asyncio.run(session.close())
        assert role.lost.is_set()
    assert [r for r in caplog.records if r.levelname in {"ERROR", "CRITICAL"}] == []


async def _leave(a, role):
    leaving = asyncio.ensure_future(a.leave())
    assert await role.lost.wait(LONG_S)
    role.release()
    await leaving


def test_leave_that_is_cancelled_goes_on():
    async def scenario(cluster):
        async with pair(cluster) as (a, _):
            role = await a.await_role(owned_by(0, 2), LONG_S)
            leaving = asyncio.create_task(a.leave())
            assert await role.lost.wait(LONG_S)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            role.release()
            assert await wait_in_loop(a._opened.left, LONG_S)

    run(scenario)


def test_on_role_is_cancelled_when_its_role_is_lost():
    async def scenario(cluster):
        began, ended = asyncio.Event(), asyncio.Queue()
        async with member(cluster) as a:

            @a.on_role(owned_by(1, 2))
            async def work(role):
                began.set()
                try:
                    await asyncio.sleep(LONG_S)
                finally:
                    ended.put_nowait(role.lost.is_set())

            await asyncio.wait_for(began.wait(), LONG_S)
            async with member(cluster, "b"):
                assert await asyncio.wait_for(ended.get(), LONG_S) is True

    run(scenario)


def test_body_that_releases_its_own_role_is_not_cancelled():
    async def scenario(cluster):
        async with member(cluster) as a:
            reached = []
            async with a.await_role("x", LONG_S) as role:
                role.release()
                assert role.lost.is_set()
                for _ in range(3):
                    await asyncio.sleep(0)
                reached.append("the end of the body")
            assert reached
            assert asyncio.current_task().cancelling() == 0
            await asyncio.sleep(0)

    run(scenario)


def test_body_whose_role_another_task_releases_is_cancelled():
    async def scenario(cluster):
        async with member(cluster) as a:
            reached = []
            async with a.await_role("x", LONG_S) as role:
                asyncio.get_running_loop().call_soon(role.release)
                await asyncio.sleep(LONG_S)
                reached.append("the end of the body")
            assert not reached
            assert asyncio.current_task().cancelling() == 0

    run(scenario)


def test_end_of_a_body_does_not_cancel_the_code_after_it():
    async def scenario(cluster):
        async with member(cluster) as a:
            async with a.await_role("x", LONG_S) as role:
                helper = asyncio.create_task(role.lost.wait(LONG_S))
                await asyncio.sleep(0)
            assert role.lost.is_set()
            assert await helper is True
            assert asyncio.current_task().cancelling() == 0

    run(scenario)


def test_end_of_an_inner_body_of_one_handle_leaves_the_outer_body_alone():
    async def scenario(cluster):
        async with member(cluster) as a:
            one = await a.await_role("x", LONG_S)
            async with one, a.get_role("x") as two:
                two.release()
                await asyncio.sleep(0)
                assert one.is_held
                assert not one.lost.is_set()

    run(scenario)


def test_async_with_on_a_released_handle_is_refused():
    async def scenario(cluster):
        async with member(cluster) as a:
            role = await a.await_role("x", LONG_S)
            role.release()
            with pytest.raises(rink.UsageError, match="'x' was released before this `with`"):
                async with role:
                    raise AssertionError("the body runs")
            await asyncio.sleep(0)
            assert asyncio.current_task().cancelling() == 0

    run(scenario)


def test_place_of_an_awaited_handle_is_the_users_line():
    async def scenario(cluster):
        async with member(cluster) as a:
            waiting, line = a.await_role("x", LONG_S), sys._getframe().f_lineno
            role = await waiting
            assert made_by(role._handle) == f"{__file__}:{line}"
            got, line = a.get_role("x"), sys._getframe().f_lineno
            assert made_by(got._handle) == f"{__file__}:{line}"
            async with a.roles(["y"]) as roles:
                line = sys._getframe().f_lineno - 1
                await changed(a, lambda: roles.held)
                assert made_by(roles.held["y"]._handle) == f"{__file__}:{line}"
            role.release()
            got.release()

    run(scenario)


def test_async_with_on_a_lost_handle_is_entered_with_lost_set():
    async def scenario(cluster):
        async with member(cluster) as a:
            role = await a.await_role(owned_by(1, 2), LONG_S)
            async with member(cluster, "b") as b:
                assert await role.lost.wait(LONG_S)
                entered = []
                async with role:
                    entered.append(role.lost.is_set())
                    await asyncio.Event().wait()  # for ever, but for the cancellation
                assert entered == [True]
                (await b.await_role(role.name, LONG_S)).release()

    run(scenario)


def test_second_async_with_of_one_handle_is_refused():
    """The end of one body would release the role under the other."""

    async def scenario(cluster):
        async with member(cluster) as a:
            role = await a.await_role("x", LONG_S)
            async with role:
                with pytest.raises(rink.UsageError, match="in an `async with` already"):
                    async with role:
                        pass
                assert role.is_held
            waiting = a.await_role("x", LONG_S)
            async with waiting as role:
                with pytest.raises(rink.UsageError, match="can be entered once"):
                    async with waiting:
                        pass
                assert role.is_held

    run(scenario)


def test_name_that_is_none_is_refused_before_anything_is_awaited():
    async def scenario(cluster):
        async with member(cluster) as a:
            with pytest.raises(rink.ConfigError, match="name"):
                a.await_role("")

    run(scenario)
