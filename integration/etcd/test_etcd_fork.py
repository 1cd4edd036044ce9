"""Test what a forked child may do.

See docs/internals/design/0002-etcd-client.md. Each test runs a fresh process that forks.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[2]

BEGIN = """
import os, sys, threading, time
sys.path.append("tests")
from forking import fork
from rink.errors import ForkedProcessError
from rink.etcd.api import Put
from rink.etcd.client import Client

endpoint = sys.argv[1]
"""


def run(node, script):
    """Run a script in a process of its own, against this etcd."""
    source = textwrap.dedent(BEGIN) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", source, node.endpoint],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_call_in_a_child_raises_at_once(node):
    """In a forked child, every call of the parent's client raises at once.

    The parent has a channel, a watch and a keepalive stream open. They go on.
    """
    run(
        node,
        """
        client = Client([endpoint])
        client.range(b"k")
        seen, renewed = [], []
        watch = client.watch(b"fork", b"", 0, seen.append)
        stream = client.keepalives(renewed.append)
        lease = client.grant(30).lease
        stream.send(lease)
        assert watch.wait_open(10)
        while not renewed: time.sleep(0.01)

        def child():
            begin = time.monotonic()
            calls = [
                lambda: client.range(b"k"),
                lambda: client.txn((), (Put(b"k", b""),)),
                lambda: client.grant(5),
                lambda: client.revoke(lease),
                lambda: client.time_to_live(lease),
                lambda: client.watch(b"k", b"", 0, print),
                lambda: client.keepalives(print),
                lambda: stream.send(lease),
                lambda: client.compact(1),
                lambda: client.version(),
                lambda: client.calls,
                lambda: client.guard,
                lambda: client.endpoint,
            ]
            for number, call in enumerate(calls):
                try:
                    call()
                except ForkedProcessError:
                    continue
                raise AssertionError(f"call {number} did not raise")
            watch.close(), stream.close(), client.close()
            assert time.monotonic() - begin < 4.5  # no call waits for its timeout, 5 s

        for n in range(10):
            fork(child, seconds=15)
            client.txn((), (Put(b"fork", b"%d" % n),))
            stream.send(lease)
        end = time.monotonic() + 10
        while len(seen) < 10 or len(renewed) < 11:
            assert time.monotonic() < end, (seen, renewed)
            time.sleep(0.01)
        assert client.calls["watch"] == 1
        client.close()
        """,
    )


def test_new_client_in_a_child_works_where_the_parent_had_opened_nothing(node):
    """A forked child can use a new client if the parent opened no channel.

    The parent's client may exist already: it opens no channel before its first call.
    """
    run(
        node,
        """
        client = Client([endpoint])

        def child():
            with Client([endpoint]) as mine:
                mine.txn((), (Put(b"k", b"v"),))
                assert mine.range(b"k").kvs[0].value == b"v"

        for _ in range(10):
            fork(child, seconds=15)
        assert client.range(b"k").kvs
        client.close()
        """,
    )


def test_parents_client_may_be_dropped_in_the_child(node):
    """A forked child may drop the parent's client.

    It collects no object of gRPC, since that hangs now and then.
    """
    run(
        node,
        """
        import gc
        client = Client([endpoint])
        client.watch(b"k", b"", 1, lambda _: None)
        client.range(b"k")

        def child():
            global client
            client = None
            gc.collect()

        for _ in range(10):
            fork(child, seconds=15)
        client.close()
        """,
    )


def test_importing_and_making_a_client_opens_nothing(node):
    """Importing and making a client opens no thread and no socket.

    So forking afterwards is safe.
    """
    out = run(
        node,
        """
        client = Client([endpoint])
        print(threading.active_count(), sum("socket" in os.readlink(f"/proc/self/fd/{fd}")
              for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")))
        client.close()
        """,
    )
    assert out.split() == ["1", "0"]


def test_client_that_is_left_open_is_closed_at_the_end_of_the_process(node):
    """A client that is left open is closed at the end of the process.

    Otherwise its threads may wake in gRPC while the interpreter ends. That caused a SIGSEGV.
    """
    out = run(
        node,
        """
        client, closed = Client([endpoint]), Client([endpoint])
        client.range(b"k")
        close = client.close
        client.close = lambda: (close(), print("closed at exit"))
        closed.close()
        """,
    )
    assert out == "closed at exit\n"


@pytest.mark.parametrize("end", ["client.close()", "pass"])
def test_process_with_open_streams_ends(node, end):
    """A process with open streams ends, since all threads are daemons."""
    run(
        node,
        f"""
        client = Client([endpoint])
        client.watch(b"k", b"", 1, lambda _: None)
        client.keepalives(lambda _: None).send(client.grant(5).lease)
        client.range(b"k")
        assert all(t.daemon and t.name.startswith("rink-") for t in threading.enumerate()
                   if t is not threading.main_thread() and "grpc" not in t.name.lower()
                   and not t.name.startswith("Thread-")), threading.enumerate()
        {end}
        """,
    )
