"""Test that a closed client leaves nothing that delays the exit."""

import gc
import threading
import weakref

import pytest
from etcd_support import Seen, eventually, put

from rink.etcd.channels import CountedChannel

pytestmark = pytest.mark.waits


@pytest.fixture
def calls(monkeypatch):
    """Collect a weak reference to each stream's call, with gc disabled."""
    made, opened = CountedChannel.stream, []

    def stream(*args):
        answers = made(*args)
        opened.append(weakref.ref(answers))
        return answers

    monkeypatch.setattr(CountedChannel, "stream", stream)
    gc.collect()
    gc.disable()
    yield opened
    gc.enable()


def begin(client, key):
    """Open a watch and a keepalive stream, and use both."""
    seen, answers = Seen(), Seen()
    client.watch(key, b"", client.range(key).header.revision + 1, seen.deliver)
    alive = client.keepalives(answers.deliver)
    alive.send(client.grant(60).lease)
    answers.wait(lambda s: s.items)
    put(client, key)
    seen.wait_events(1)


def test_no_call_is_left_for_the_garbage_collector_of_an_exiting_process(
    node, clients, prefix, calls
):
    """A process that exits leaves no call to the garbage collector.

    gRPC's finalizer takes a lock. A thread that the exit has killed may hold this lock for ever.
    """
    client = clients(node.endpoint)
    begin(client, prefix.encode())
    client.close()
    assert len(calls) == 2
    eventually(lambda: not any(call() for call in calls))  # the collector is off, so none is left


def test_no_call_that_broke_is_left_for_the_garbage_collector(node, clients, prefix, calls):
    client = clients(node.endpoint)
    begin(client, prefix.encode())
    node.kill()
    eventually(lambda: not any(call() for call in calls))
    node.start()
    eventually(lambda: len(calls) >= 4)


def test_every_thread_of_a_closed_client_ends(node, clients, prefix):
    before = set(threading.enumerate())
    client = clients(node.endpoint)
    begin(client, prefix.encode())
    client.close()
    eventually(lambda: set(threading.enumerate()) <= before)
