"""Check that a forked child can do nothing with its parent's groups."""

from process_support import run


def test_child_is_refused_at_once_and_its_parent_is_unharmed():
    out = run("""
        a = member("a")
        role, set_ = a.await_role("x", 10), a.roles(["x", "y"])
        versions, followed, lost = a.versions(), a.versions(), role.lost
        next(followed)
        entered = a.roles(["z"]).__enter__()
        changes = iter(entered)
        assert next(changes).gained
        def child():
            for call in (
                lambda: a.get_role("x"), lambda: a.get_role("other"), lambda: a.await_role("x"),
                lambda: a.can_take("x"), lambda: a.owner("x"), lambda: a.rank, lambda: a.size,
                lambda: a.version, lambda: a.is_coordinator, lambda: a.members, a.status,
                lambda: a.session_remaining, lambda: a.wait_settled(40), lambda: next(versions),
                set_.__enter__, lambda: role.is_held, lambda: role.lost, role.raise_if_lost,
                role.__enter__, lambda: a._session.is_live,
                lambda: next(followed), lambda: next(changes), lambda: next(iter(entered)),
                lambda: entered.held, lost.is_set, lambda: lost.wait(40),
                lambda: rink.Rink(a._session, "h").join(),
            ):
                refused(call)
            refused(a.join, rink.UsageError)
            print(a.name, repr(a), repr(role), role.token, role.name)
        fork(child)
        assert role.is_held and not role.lost.is_set()
        with a.roles(["y"]):
            pass
        assert entered.held["z"].is_held and not lost.is_set()
        changes.close(), followed.close(), entered.__exit__()
        role.release()
        a.leave()
    """)
    assert "records at exit: []" in out


def test_what_ends_does_nothing_in_a_child():
    run("""
        a = member("a")
        role, other = a.await_role("x", 10), a.get_role("z").__enter__()
        roles = a.roles(["y"]).__enter__()
        def child():
            role.release()
            other.__exit__(None, None, None)
            roles.__exit__(None, None, None)
            a.__exit__(None, None, None)
            a.leave()
            a._session.close()
            a._session.__exit__(None, None, None)
            globals().pop("role"), globals().pop("a")
            gc.collect()
        with a._opened.lock:  # as the parent's engine may hold it at the moment of the fork
            fork(child)
        assert records() == {"a"}
        assert role.is_held and list(a.status().held)[:2] == ["x", "z"]
        role.release(), other.release(), roles.__exit__()
    """)


def test_child_may_join_with_a_session_of_its_own():
    out = run("""
        a = member("a")
        def child():
            global cluster
            cluster = MemoryCluster()
            with member("b", joins=False) as b, b.await_role("x", 10) as role:
                print("held in the child:", role.is_held)
        fork(child)
        a.await_role("x", 10).release()
    """)
    assert "held in the child: True" in out


def test_child_forked_during_a_step_of_its_parent_may_join():
    """Whatever lock the parent's engine held is held in the child for ever."""
    out = run("""
        import functools
        a = member("a")
        inside, goes_on = threading.Event(), threading.Event()
        def slow(now, publish):
            inside.set()
            goes_on.wait()
            publish(now)
        engine = a._opened
        with engine.lock:
            engine.node._publish = functools.partial(slow, publish=engine.node._publish)
        engine.nudge()
        assert inside.wait(10)
        from rink.engine.stepper import step_queue
        assert step_queue.is_taken
        def child():
            global cluster
            assert not step_queue.is_taken  # else each step of the child's would wait in vain
            cluster = MemoryCluster()
            with member("b", joins=False) as b, b.await_role("x", 10) as role:
                print("held in the child:", role.is_held)
        fork(child)
        goes_on.set()
        a.await_role("x", 10).release()
    """)
    assert "held in the child: True" in out


def test_asyncio_face_is_refused_in_a_child_as_the_blocking_one():
    out = run("""
        import asyncio
        import rink.aio

        async def main():
            async with rink.aio.Session(cluster.client()) as session:
                async with rink.aio.Rink(session, "h", name="a") as a:
                    followed = a.versions()
                    await anext(followed)
                    entered = await a.roles(["z"]).__aenter__()
                    changes = aiter(entered)
                    assert (await anext(changes)).gained
                    def child():
                        for call in (
                            lambda: anext(followed), lambda: anext(a.versions()),
                            lambda: a.wait_settled(40), lambda: anext(changes),
                            lambda: anext(aiter(entered)), a.roles(["y"]).__aenter__,
                            lambda: a.get_role("x").__aenter__(),
                            lambda: a.await_role("x").__aenter__(),
                        ):
                            async def awaited(call=call):
                                await call()
                            refused(lambda: asyncio.run(awaited()))
                        refused(lambda: entered.held)
                        os._exit(0)  # the loop of the parent cannot end here
                    fork(child)
                    assert entered.held["z"].is_held
                    await changes.aclose()
                    await followed.aclose()
                    await entered.__aexit__(None, None, None)
        asyncio.run(main())
    """)
    assert "records at exit" in out
