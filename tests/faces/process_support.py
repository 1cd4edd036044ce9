"""Run scripts as processes of their own, each with an etcd in it.

A script can read the records after everything else has ended.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]

BEGIN = """
import atexit, gc, os, signal, sys, threading, time
sys.path.append("tests")
from forking import fork
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
from rink.engine.clock import SYSTEM, SystemClock
from rink.base_rink import Subscription
from rink.testing.memory.cluster import MemoryCluster
from rink.testing.virtual_clock import VirtualClock

cluster, clock = MemoryCluster(), SYSTEM

def use_virtual_time():
    global cluster, clock
    clock = VirtualClock()
    cluster = clock.cluster

def session(**settings):
    # In real time a short lease would end if the machine stood still for long.
    return rink.Session(cluster.client(), **{"ttl": 60, "clock": clock, **settings})

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

def refused(call, error=rink.ForkedProcessError):
    begin = time.monotonic()
    try:
        call()
    except error:
        assert time.monotonic() - begin < 20, "calls that wait are given more"
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
