"""Check mailboxes, signals, request threads and callbacks."""

import contextlib
import logging
import queue
import runpy
import signal as signals
import sys
import threading
import time

import pytest

from rink.engine import clock
from rink.engine.callbacks import Callbacks, Listeners
from rink.engine.clock import SIGNAL_CHECK_INTERVAL_S, SYSTEM
from rink.engine.request_threads import MAX_THREADS, RequestThreads
from rink.engine.signals import Signal
from rink.testing.virtual_clock import VirtualClock

LONG_S = 20.0


@pytest.fixture
def calls():
    made = RequestThreads(SYSTEM)
    yield made
    made.close()


@pytest.fixture
def told():
    made = []

    def tell(listener):
        callbacks = Callbacks(SYSTEM, Listeners(on_rank_change=listener), {"group": "g"})
        made.append(callbacks)
        callbacks.start()
        return callbacks

    yield tell
    for callbacks in made:
        callbacks.close()


# ── clock and mailbox ────────────────────────────────────────────────────────────────────────────


def test_clock_goes_forward_and_the_wall_clock_is_readable():
    assert SYSTEM.now() <= SYSTEM.now()
    assert SYSTEM.wall().endswith("+00:00")


def test_wall_clock_of_a_time_too_far_ahead_is_the_last_one_there_is():
    """A delay of 1e12 s is as good as for ever, and `status()` must show it."""
    assert SYSTEM.wall(1e12) == SYSTEM.wall(1e300) == "9999-12-31T23:59:59.999+00:00"
    assert VirtualClock().wall(1e12) == "9999-12-31T23:59:59.999+00:00"


class NeverSet:
    """An event of which a wait always times out, which takes no time."""

    def __init__(self):
        self.waited = []

    def wait(self, timeout):
        self.waited.append(timeout)
        if len(self.waited) == 5:
            raise KeyboardInterrupt  # what is heard between two pieces
        return False


def test_wait_is_cut_into_pieces_since_a_sleeping_thread_hears_no_signal():
    event = NeverSet()
    with pytest.raises(KeyboardInterrupt):
        SYSTEM.wait(event, None)
    assert event.waited == [SIGNAL_CHECK_INTERVAL_S] * 5
    event = NeverSet()
    with pytest.raises(KeyboardInterrupt):
        SYSTEM.wait(event, 3600.0)
    assert event.waited == [SIGNAL_CHECK_INTERVAL_S] * 5


def test_wait_ends_with_its_timeout():
    event = NeverSet()
    assert SYSTEM.wait(event, 0.0) is False
    assert event.waited == [0.0]
    event = threading.Event()
    event.set()
    assert SYSTEM.wait(event, 0.0) is True


def test_event_that_is_cleared_is_waited_for_anew():
    event = SYSTEM.event()
    for _ in range(3):
        event.set()
        event.set()
        assert SYSTEM.wait(event, 0.0)
        event.clear()
        assert not event.is_set()
        assert not SYSTEM.wait(event, 0.01)


def test_event_wakes_the_thread_that_waits():
    event, woken = SYSTEM.event(), queue.SimpleQueue()
    thread = threading.Thread(target=lambda: woken.put(SYSTEM.wait(event, LONG_S)))
    thread.start()
    event.set()
    assert woken.get(timeout=LONG_S) is True
    thread.join()


@contextlib.contextmanager
def slow_handler():
    """A signal comes after 0.05 s, and its handler computes until 0.2 s."""
    until = SYSTEM.now() + 0.2

    def compute(*_):
        while SYSTEM.now() < until:
            pass

    before = signals.signal(signals.SIGALRM, compute)
    try:
        signals.setitimer(signals.ITIMER_REAL, 0.05)
        yield
    finally:
        signals.setitimer(signals.ITIMER_REAL, 0)
        signals.signal(signals.SIGALRM, before)


def test_wait_whose_time_ends_in_a_signal_handler_ends():
    """`queue.SimpleQueue.get` waits for ever: a negative rest is no timeout."""
    event = SYSTEM.event()
    rescue = threading.Timer(LONG_S, event.set)
    rescue.start()
    with slow_handler():
        assert not event.wait(0.1)
    rescue.cancel()


def test_mailbox_whose_time_ends_in_a_signal_handler_gives_nothing():
    mailbox = SYSTEM.mailbox()
    rescue = threading.Timer(LONG_S, mailbox.put, ["late"])
    rescue.start()
    with slow_handler():
        assert mailbox.take(SYSTEM.now() + 0.1) == []
    rescue.cancel()


def test_waits_shorter_than_a_time_slice_end():
    """A thread may lose its processor between a wait's start and the sleep.

    A slow machine takes more than 20 s for 30,000 waits, so they also end after 2 s.
    """
    ended = threading.Event()

    def wait():
        until = time.monotonic() + 2.0
        for _ in range(30_000):
            SYSTEM.give_way(0.000_001)
            if time.monotonic() > until:
                break
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(LONG_S)


def test_event_set_a_thousand_times_keeps_one_ring():
    event = SYSTEM.event()
    for _ in range(1000):
        event.set()
    assert event.wait(LONG_S)
    event.clear()
    assert not event.wait(0.0)


def test_clock_counts_suspend_and_nobody_sets_it(monkeypatch):
    """etcd's own clock does so: a lease ends while the machine sleeps."""
    monkeypatch.setattr(time, "clock_gettime", lambda which: which)
    assert runpy.run_path(clock.__file__)["SYSTEM"].now() == time.CLOCK_BOOTTIME


def test_mailbox_gives_everything_that_lies_in_it_in_order():
    mailbox = SYSTEM.mailbox()
    for item in range(5):
        mailbox.put(item)
    assert mailbox.take(None) == [0, 1, 2, 3, 4]
    assert mailbox.take(SYSTEM.now()) == []
    assert mailbox.take(SYSTEM.now() - 1) == []


def test_mailbox_is_waited_for_until_a_time():
    mailbox = SYSTEM.mailbox()
    until = SYSTEM.now() + 0.02
    assert mailbox.take(until) == []
    assert SYSTEM.now() >= until


def test_mailbox_wakes_who_waits_without_an_end():
    mailbox, got = SYSTEM.mailbox(), queue.SimpleQueue()
    thread = threading.Thread(target=lambda: got.put(mailbox.take(None)))
    thread.start()
    mailbox.put("x")
    assert got.get(timeout=LONG_S) == ["x"]
    thread.join()


def test_mailbox_may_be_posted_to_from_a_finalizer():
    mailbox = SYSTEM.mailbox()

    class Dropped:
        def __del__(self):
            mailbox.put(1)

    for _ in range(1000):
        Dropped()
    assert len(mailbox.take(None)) == 1000


# ── signal ───────────────────────────────────────────────────────────────────────────────────────


def test_signal_is_set_once_and_for_ever():
    signal, seen = Signal(SYSTEM), []
    signal.then(lambda: seen.append("before"))
    assert not signal.is_set()
    assert signal.wait(0) is False
    signal.set()
    signal.set()
    signal.then(lambda: seen.append("after"))
    assert seen == ["before", "after"]
    assert signal.is_set()
    assert signal.wait() is True


def test_callback_of_a_signal_that_raises_keeps_no_other_from_hearing(caplog):
    signal, seen = Signal(SYSTEM), []
    signal.then(lambda: 1 / 0)
    signal.then(lambda: seen.append("heard"))
    signal.set()
    assert seen == ["heard"]
    assert "of a signal raised" in caplog.text


def test_forgotten_callback_is_not_called():
    signal, seen = Signal(SYSTEM), []

    def note():
        seen.append(1)

    signal.then(note)
    signal.forget(note)
    signal.forget(note)
    signal.set()
    assert seen == []


def test_wait_that_times_out_leaves_nothing_behind():
    signal = Signal(SYSTEM)
    for _ in range(10):
        assert signal.wait(0.001) is False
    assert signal._callbacks == []


def test_callback_may_look_at_the_signal_and_set_others():
    signal, other, seen = Signal(SYSTEM), Signal(SYSTEM), []
    other.then(lambda: seen.append(signal.is_set()))
    signal.then(other.set)
    signal.then(lambda: signal.then(lambda: seen.append("within")))
    signal.set()
    assert seen == [True, "within"]


def test_signal_set_in_a_race_wakes_all_and_calls_each_callback_once():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            signal, count, begin = Signal(SYSTEM), queue.SimpleQueue(), threading.Barrier(4)

            def then(signal=signal, count=count, begin=begin):
                begin.wait()
                signal.then(lambda: count.put(1))

            def wait(signal=signal, count=count, begin=begin):
                begin.wait()
                assert signal.wait(LONG_S)
                count.put(1)

            threads = [threading.Thread(target=run) for run in (then, wait, wait)]
            for thread in threads:
                thread.start()
            begin.wait()
            signal.set()
            for thread in threads:
                thread.join()
            assert count.qsize() == 3
    finally:
        sys.setswitchinterval(interval)


# ── calls ────────────────────────────────────────────────────────────────────────────────────────


def test_calls_are_made_and_threads_are_used_again(calls):
    done = queue.SimpleQueue()
    for index in range(50):
        calls.submit(lambda index=index: done.put(index))
        assert done.get(timeout=LONG_S) == index
        while not calls._idle:  # else the next call comes before its thread has nothing to do
            assert calls._threads == 1
    assert calls._threads == 1


def test_no_more_calls_than_a_bound_are_under_way_and_the_rest_wait(calls):
    goes_on, began, done = threading.Event(), queue.SimpleQueue(), queue.SimpleQueue()

    def hang():
        began.put(1)
        goes_on.wait(LONG_S)

    for _ in range(MAX_THREADS):
        calls.submit(hang)
    for _ in range(MAX_THREADS):
        began.get(timeout=LONG_S)
    for index in range(20):
        calls.submit(lambda index=index: done.put(index))
    assert calls._threads == MAX_THREADS
    assert done.empty()
    goes_on.set()
    assert sorted(done.get(timeout=LONG_S) for _ in range(20)) == list(range(20))


def test_call_whose_thread_fails_to_start_waits_for_another_thread(calls, monkeypatch):
    """A call on the submitting thread would hold up the engine and its lease."""
    goes_on, began, done = threading.Event(), threading.Event(), queue.SimpleQueue()

    def hang():
        began.set()
        goes_on.wait(LONG_S)

    def note():
        done.put(threading.current_thread())

    def refuse(_):
        raise RuntimeError("can't start new thread")

    calls.submit(hang)
    assert began.wait(LONG_S)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        calls.submit(note)
    assert done.empty()
    goes_on.set()
    assert done.get(timeout=LONG_S) is not threading.current_thread()
    assert calls._threads == 1


def test_call_without_any_thread_is_made_where_it_is_submitted(calls, monkeypatch):
    """At the exit, Python 3.12 starts no thread, and a member must leave."""

    def refuse(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    called = []
    calls.submit(lambda: called.append(threading.current_thread()))
    assert called == [threading.current_thread()]


class Log(logging.Handler):
    """Put log lines in a queue, since any thread may log at any time."""

    def __init__(self):
        super().__init__()
        self.said = queue.SimpleQueue()

    def emit(self, record):
        self.said.put(record.getMessage())


def test_call_that_raises_is_logged_and_the_next_is_made(calls):
    log, done = Log(), threading.Event()

    def fail():
        raise ZeroDivisionError

    logging.getLogger("rink").addHandler(log)
    try:
        for _ in range(2):
            calls.submit(fail)
            assert "an unexpected error" in log.said.get(timeout=LONG_S)
    finally:
        logging.getLogger("rink").removeHandler(log)
    calls.submit(done.set)
    assert done.wait(LONG_S)


def test_nothing_is_called_after_the_close_and_the_threads_end(calls):
    goes_on, began, never = threading.Event(), queue.SimpleQueue(), threading.Event()

    def hang():
        began.put(threading.current_thread())
        goes_on.wait(LONG_S)

    calls.submit(hang)
    calls.submit(lambda: began.put(threading.current_thread()))
    threads = [began.get(timeout=LONG_S) for _ in range(2)]
    calls.close()
    calls.submit(never.set)
    goes_on.set()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    assert not never.is_set()


# ── callbacks ────────────────────────────────────────────────────────────────────────────────────


def test_callbacks_are_called_in_order_on_one_thread(told):
    seen = queue.SimpleQueue()
    callbacks = told(lambda rank: seen.put((rank, callbacks.is_here())))
    for rank in range(100):
        callbacks.ranked(rank)
    assert [seen.get(timeout=LONG_S) for _ in range(100)] == [(i, True) for i in range(100)]
    assert not callbacks.is_here()


def test_no_callback_is_no_thread(told):
    made = told(None)
    made.ranked(1)
    assert made._thread is None


def test_callback_that_raises_is_logged_by_its_name(told, caplog):
    done = threading.Event()

    def fails(rank):
        if rank:
            raise ValueError(rank)
        done.set()

    callbacks = told(fails)
    callbacks.ranked(1)
    callbacks.ranked(0)
    assert done.wait(LONG_S)
    [said] = [r.getMessage() for r in caplog.records if r.getMessage().startswith("callback")]
    assert said.endswith("fails(1,) raised")


def test_what_was_told_before_the_close_is_called_and_nothing_after(told):
    goes_on, seen = threading.Event(), []

    def hears(rank):
        goes_on.wait(LONG_S)
        seen.append(rank)

    callbacks = told(hears)
    callbacks.ranked(1)
    callbacks.ranked(2)
    callbacks.close()
    callbacks.ranked(3)
    goes_on.set()
    callbacks._thread.join(LONG_S)
    assert not callbacks._thread.is_alive()
    assert seen == [1, 2]
