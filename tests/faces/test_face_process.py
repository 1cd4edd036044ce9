"""Check Ctrl-C and the exit of a process, with a process per script."""

import pytest
from process_support import run


def test_ctrl_c_in_await_role_withdraws_the_request():
    out = run("""
        a, b = member("a"), member("b")
        next(version for version in a.versions() if len(version.ranks) == 2)
        name = next(f"r{i}" for i in range(99) if a.owner(f"r{i}") == "b")
        interrupt_when(a, lambda: a.status().waiting_for)
        try:
            a.await_role(name)
        except KeyboardInterrupt:
            print("interrupted")
        assert a.status().waiting_for == {}, a.status()
        b.leave()
        a.wait_settled(10)
        assert a.status().held == {}
        a.await_role(name, 10).release()
    """)
    assert "interrupted" in out
    assert "records at exit: []" in out


def test_ctrl_c_in_join_leaves_no_record():
    out = run("""
        a = member("a")
        other = member("a", joins=False)
        interrupt_when(other, lambda: "still has its name" in other.status().last_error)
        try:
            other.join()
        except KeyboardInterrupt:
            print("interrupted")
        assert other._opened.left.wait(10)
        a.leave()
    """)
    assert "interrupted" in out
    assert "records at exit: [] leases: 0" in out


def test_ctrl_c_in_leave_goes_on_leaving():
    out = run("""
        a = member("a")
        role = a.await_role("x", 10)
        interrupt_when(a, role.lost.is_set)
        try:
            a.leave()
        except KeyboardInterrupt:
            print("interrupted")
        assert records() == {"a"}
        role.release()
        assert a._opened.left.wait(10)
        assert records() == set()
    """)
    assert "interrupted" in out


def test_ctrl_c_in_a_body_under_with_leaves_no_record():
    out = run(
        """
        with session() as s, rink.Rink(s, "g", name="a", initial_delay=0) as a:
            with a.await_role("x", 10) as role:
                interrupt_when(a, lambda: True)
                try:
                    role.lost.wait()
                except KeyboardInterrupt:
                    print("interrupted")
                    raise SystemExit(3)
        """,
        code=3,
    )
    assert "interrupted" in out
    assert "records at exit: []" in out


@pytest.mark.parametrize("face", ["rink.Session", "rink.aio.Session"])
def test_ctrl_c_under_a_session_alone_does_not_wait_for_ever(face):
    run(
        f"""
        import asyncio
        import rink.aio
        s = {face}(cluster.client(), ttl=10)
        module = rink.aio if s.__class__.__module__ == "rink.aio" else rink

        def make():
            return module.Rink(s, "g", name="a", initial_delay=0, leave_timeout=0.2)

        async def main():
            async with s:
                kept = await (await make().join()).await_role("x", 10)
                raise SystemExit(3)

        if module is rink:
            with s:
                kept = make().join().await_role("x", 10)
                raise SystemExit(3)
        asyncio.run(main())
        """,
        code=3,
    )


@pytest.mark.parametrize(
    "end", ["", "raise SystemExit(0)", "del a; gc.collect()", "b = member('b'); b.wait_settled(9)"]
)
def test_exit_leaves_every_group(end):
    out = run(f"""
        a = member("a")
        a.await_role("x", 10).release()
        {end}
    """)
    assert "records at exit: []" in out


@pytest.mark.parametrize(
    "hold",
    [
        "role = a.await_role('x', 10); del a",
        "a.on_role('y')(lambda role: began.set() or threading.Event().wait()); began.wait(10)",
    ],
)
def test_exit_with_a_role_never_released_is_bounded_and_keeps_its_claim(hold):
    """A thread may still work under the role until the process is gone."""
    out = run(f"""
        use_virtual_time()
        a, began = member("a"), threading.Event()
        {hold}
        at = clock.now()
        atexit._run_exitfuncs()
        assert clock.now() - at < 2.5 + 0.1, "half the bound is for roles"
    """)
    assert "records at exit: ['a'] leases: 1" in out


def test_first_callback_may_come_at_the_exit():
    out = run("""
        a = member("a", on_role_change=lambda *what: print(*what))
        a.wait_settled(10)
        role = a.get_role("x")
    """)
    assert "x False" in out


@pytest.mark.parametrize(("end", "left"), [("role.release()", "[]"), ("", "['a']")])
def test_exit_leaves_where_no_thread_can_be_started_any_more(end, left):
    # As from Python 3.12 on: "can't create new thread at interpreter shutdown".
    out = run(f"""
        a = member("a", on_role_change=print)
        a.wait_settled(10)
        role = a.get_role("x")
        {end}

        @atexit.register
        def no_threads():
            def refuse(thread):
                raise RuntimeError("can't create new thread at interpreter shutdown")
            threading.Thread.start = refuse
            with a._session._request_threads._lock:
                a._session._request_threads._idle.clear()
                a._session._request_threads._threads = 0
    """)
    assert f"records at exit: {left}" in out


def test_exit_is_bounded_where_etcd_is_gone():
    run("""
        use_virtual_time()
        members = [member(name) for name in "abc"]
        for one in members:
            one._session.etcd.cut()
        began = clock.now()
        atexit._run_exitfuncs()
        assert clock.now() - began < 5.0 + 0.1, "sessions share the bound"
        cluster.store.expire(cluster.now() + 100)
    """)


def test_exit_with_many_sessions_and_unreleased_roles_is_bounded():
    out = run("""
        use_virtual_time()
        kept = [member(name).get_role for name in "abc"]
        clock.advance(1.0)
        roles = [role for get in kept for i in range(9) if (role := get(f"r{i}"))]
        print("holders:", sorted({role._engine.node.name for role in roles}))
        began = clock.now()
        atexit._run_exitfuncs()
        assert clock.now() - began < 2.5 + 0.1, "half the bound is for roles"
    """)
    (holders,) = [line for line in out.splitlines() if line.startswith("holders: ")]
    assert f"records at exit: {holders.removeprefix('holders: ')} " in out
