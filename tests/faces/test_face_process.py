"""What concerns a whole process: Ctrl-C, forks, and the exit. Each script is a process of its own.

The etcd is in that process too, so a script can look at the records after everything else.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BEGIN = """
import atexit, gc, os, select, signal, sys, threading, time, traceback
begin = time.monotonic()
came, heard = [], threading.Event()

def ctrl_c(*_):
    # As Python's own, but once. Whoever runs the tests in the background of a shell without job
    # control has SIGINT ignored, so it is set anyway.
    if not came:
        came.append(True)  # first: the next may come in the midst of this one
        heard.set()
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, ctrl_c)

def records(group="g"):
    root = f"rink/{group}/members/".encode()
    return {kv.key.removeprefix(root).decode() for kv in store().range(root, root[:-1] + b"0").kvs}

def store():
    return cluster.store

@atexit.register  # before rink's own, so it is called after it
def at_exit():
    if os.getpid() == parent:
        print("records at exit:", sorted(records()), "leases:", len(store()._leases))

parent = os.getpid()
import rink
from rink.engine.clock import SystemClock
from rink.face import Subscription
from rink.testing.memory import MemoryCluster

cluster = MemoryCluster()

def session(**settings):
    return rink.Session(cluster.client(), **{"ttl": 10, **settings})

def member(name="a", joins=True, **settings):
    given = {"rebalance_delay": 0, "initial_delay": 0, "name": name, **settings}
    made = rink.Rink(session(), "g", **given)
    return made.join() if joins else made

main_waits, wait = threading.Event(), SystemClock.wait

def noted_wait(clock, event, timeout):
    if threading.current_thread() is threading.main_thread():
        main_waits.set()
    return wait(clock, event, timeout)

SystemClock.wait = noted_wait

def interrupt_when(r, happens):
    # Once this is so, and the main thread waits in a call of Rink's that begins after this one.
    # One that comes just before a thread goes to sleep does not wake it: Python looks for signals
    # before that and after. So it is sent until it is heard, as people press Ctrl-C again.
    main_waits.clear()
    def run():
        main_waits.wait()
        with Subscription(r._opened) as steps:
            while not happens():
                steps.wait(None)
        os.kill(os.getpid(), signal.SIGINT)
        while not heard.wait(0.1):
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=run, daemon=True).start()

def fork(body):
    # Runs body in a child, which ends as any process does; prints what it raised.
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        sys.exit(code)
    ended, _, _ = select.select([os.pidfd_open(pid)], [], [], 30)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert ended, "the child hangs"
    assert status == 0, status

def refused(call, error=rink.ForkedProcessError):
    begin = time.monotonic()
    try:
        call()
    except error:
        assert time.monotonic() - begin < 2
    else:
        raise AssertionError("not refused")
"""


def run(script, code=0):
    """Run a script in a process of its own; what it printed."""
    source = BEGIN + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", source],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Exception ignored" not in done.stderr, done.stderr
    assert "Exception in thread" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


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
def test_the_exit_leaves_every_group(end):
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
        "threading.Thread(target=lambda: a.on_role('y')(lambda role: threading.Event().wait())).start()",
    ],
)
def test_the_exit_leaves_within_a_bound_where_a_role_is_never_released(hold):
    out = run(f"""
        a = member("a")
        {hold}
        import atexit
        atexit.register(lambda: print("took:", round(time.monotonic() - begin, 2)))
        atexit._run_exitfuncs()
        print("after:", time.monotonic() - begin)
    """)
    assert "records at exit: []" in out
    assert float(out.split("after: ")[1].split()[0]) < 7.0


def test_the_first_callback_may_come_at_the_exit():
    out = run("""
        a = member("a", on_role_change=lambda *what: print(*what))
        a.wait_settled(10)
        role = a.get_role("x")
    """)
    assert "x False" in out
    assert "records at exit: []" in out


def test_the_exit_leaves_where_no_thread_can_be_started_any_more():
    # As from Python 3.12 on: "can't create new thread at interpreter shutdown".
    out = run("""
        a = member("a", on_role_change=print)
        a.wait_settled(10)
        role = a.get_role("x")

        @atexit.register
        def no_threads():
            def refuse(thread):
                raise RuntimeError("can't create new thread at interpreter shutdown")
            threading.Thread.start = refuse
            with a._session._calls._lock:
                a._session._calls._idle.clear()
    """)
    assert "records at exit: []" in out


def test_the_exit_is_bounded_where_etcd_is_gone():
    run("""
        members = [member(name) for name in "abc"]
        for one in members:
            one._session.etcd.cut()
        began = time.monotonic()
        atexit._run_exitfuncs()
        assert time.monotonic() - began < 5.0 + 2.0, "sessions share the bound"
        cluster.store.expire(cluster.now() + 100)
    """)


def test_the_exit_is_bounded_where_many_sessions_have_roles_that_are_never_released():
    out = run("""
        kept = [member(name).get_role for name in "abc"]
        roles = [role for get in kept for i in range(9) if (role := get(f"r{i}"))]
        began = time.monotonic()
        atexit.register(lambda: print("took", time.monotonic() - began))
        atexit._run_exitfuncs()
        assert time.monotonic() - began < 2.5 + 2.0, "half the bound is for roles"
    """)
    assert "records at exit: []" in out


def test_a_child_is_refused_at_once_and_its_parent_is_unharmed():
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
                lambda: a.owns("x"), lambda: a.owner("x"), lambda: a.rank, lambda: a.size,
                lambda: a.version, lambda: a.is_leader, lambda: a.members, a.status,
                lambda: a.session_remaining, lambda: a.wait_settled(1), lambda: next(versions),
                set_.__enter__, lambda: role.is_held, lambda: role.lost, role.raise_if_lost,
                role.__enter__, lambda: a._session.is_live,
                lambda: next(followed), lambda: next(changes), lambda: next(iter(entered)),
                lambda: entered.held, lost.is_set, lambda: lost.wait(9),
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


def test_a_child_may_join_with_a_session_of_its_own():
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


def test_a_child_may_join_though_it_was_forked_in_the_midst_of_a_step_of_its_parents():
    """Whatever lock the parent's engine held is held in the child for ever."""
    out = run("""
        import attrs
        a = member("a")
        inside, goes_on = threading.Event(), threading.Event()
        class Slow(dict):
            def values(self):
                if sys._getframe(1).f_code.co_name == "by_age":
                    inside.set()
                    goes_on.wait()
                return super().values()
        assert a.wait_settled(10)  # nothing comes any more that makes a view of its own
        engine = a._opened
        with engine.lock:
            view = engine.node.view
            engine.node.view = attrs.evolve(view, members=Slow(view.members))
        engine.nudge()
        assert inside.wait(10)
        from rink.engine.engine import _turns
        assert _turns.is_taken
        def child():
            global cluster
            assert not _turns.is_taken  # else each step of the child's would wait in vain
            cluster = MemoryCluster()
            with member("b", joins=False) as b, b.await_role("x", 10) as role:
                print("held in the child:", role.is_held)
        fork(child)
        goes_on.set()
        a.await_role("x", 10).release()
    """)
    assert "held in the child: True" in out
