"""Blocking requests to etcd, on threads of their own, so that no engine ever blocks on one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rink.engine.clock import Clock, Mailbox

log = logging.getLogger("rink")

Call = Callable[[], None]

MAX_THREADS = 8
"""Largest number of threads of one `RequestThreads`. An engine seldom needs more than three."""


class RequestThreads:
    """A few threads that take calls in order. Daemons: a hung request must not hold an exit."""

    def __init__(self, clock: Clock, name: str = "rink-call") -> None:
        self._clock = clock
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[Mailbox[Call | None]] = []
        self._threads = 0
        self._waiting: list[Call] = []
        self._closed = False

    def submit(self, call: Call) -> None:
        """Schedule a call, which reports its own outcome.

        Nothing is called after close.
        """
        with self._lock:
            if self._hand_over(call, MAX_THREADS):
                return
            self._threads += 1
            name = f"{self._name}-{self._threads}"
        mailbox: Mailbox[Call | None] = self._clock.mailbox()
        mailbox.put(call)
        thread = threading.Thread(target=self._run, args=(mailbox,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started now, or at the exit (from Python 3.12 on)
            mailbox.close()
            self._go_without_thread(call)

    def _go_without_thread(self, call: Call) -> None:
        with self._lock:
            self._threads -= 1
            if self._hand_over(call, 1):
                return
            # There is no thread at all. Others may have counted on this one.
            calls, self._waiting = [call, *self._waiting], []
        for one in calls:
            self._call(one)

    def _hand_over(self, call: Call, enough: int) -> bool:
        """Give a call to a thread, idle now or soon, if there are enough.

        Returns:
            Whether the call needs no new thread. After the close it is dropped.
        """
        if self._closed:
            return True
        if self._idle:
            self._idle.pop().put(call)
        elif self._threads >= enough:
            self._waiting.append(call)
        else:
            return False
        return True

    def _run(self, mailbox: Mailbox[Call | None]) -> None:
        while True:
            for call in mailbox.take(None):
                if call is None:
                    mailbox.close()
                    return
                self._call(call)
            if not self._next(mailbox):
                mailbox.close()
                return

    def _next(self, mailbox: Mailbox[Call | None]) -> bool:
        """Take what waits, or become idle; false where there is no more to come."""
        while True:
            with self._lock:
                if self._closed:
                    return False
                if not self._waiting:
                    self._idle.append(mailbox)
                    return True
                call = self._waiting.pop(0)
            self._call(call)

    def _call(self, call: Call) -> None:
        try:
            call()
        except Exception:
            log.exception("a request failed in a way nobody expected; please report it")

    def close(self) -> None:
        """Start no more calls, and end the threads that have nothing to do."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            idle, self._idle = self._idle, []
        for mailbox in idle:
            mailbox.put(None)
