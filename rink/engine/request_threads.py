"""Make blocking requests to etcd on threads other than an engine's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rink.engine.clock import Clock, Mailbox

log = logging.getLogger("rink")

RequestCall = Callable[[], None]

MAX_THREADS = 8
"""Largest number of threads of one `RequestThreads`. An engine seldom needs more than three."""


class RequestThreads:
    """Run calls in order on a few threads.

    The threads are daemons, so a request that hangs does not delay the interpreter's exit.
    """

    def __init__(self, clock: Clock, name: str = "rink-call") -> None:
        self._clock = clock
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[Mailbox[RequestCall | None]] = []
        self._threads = 0
        self._waiting: list[RequestCall] = []
        self._closed = False

    def submit(self, call: RequestCall) -> None:
        """Schedule a call that reports its own outcome, unless this is closed."""
        with self._lock:
            if self._hand_over(call, MAX_THREADS):
                return
            self._threads += 1
            name = f"{self._name}-{self._threads}"
        mailbox: Mailbox[RequestCall | None] = self._clock.mailbox()
        mailbox.put(call)
        thread = threading.Thread(target=self._run, args=(mailbox,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started now, or during the exit (Python 3.12)
            mailbox.close()
            self._go_without_thread(call)

    def _go_without_thread(self, call: RequestCall) -> None:
        with self._lock:
            self._threads -= 1
            if self._hand_over(call, 1):
                return
            # There is no thread at all. Make this call, and the calls that were left to the thread.
            calls, self._waiting = [call, *self._waiting], []
        for waiting in calls:
            self._call(waiting)

    def _hand_over(self, call: RequestCall, enough: int) -> bool:
        """Give a call to an idle thread, or queue it if there are enough threads.

        Return whether it needs no new thread. After the close, the call is dropped.
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

    def _run(self, mailbox: Mailbox[RequestCall | None]) -> None:
        while True:
            for call in mailbox.take(None):
                if call is None:
                    mailbox.close()
                    return
                self._call(call)
            if not self._next(mailbox):
                mailbox.close()
                return

    def _next(self, mailbox: Mailbox[RequestCall | None]) -> bool:
        """Make the waiting calls, then become idle. Return False after the close."""
        while True:
            with self._lock:
                if self._closed:
                    return False
                if not self._waiting:
                    self._idle.append(mailbox)
                    return True
                call = self._waiting.pop(0)
            self._call(call)

    def _call(self, call: RequestCall) -> None:
        try:
            call()
        except Exception:
            log.exception("a request to etcd failed with an unexpected error; please report it")

    def close(self) -> None:
        """Drop the waiting calls, and end each thread when it is idle."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            idle, self._idle = self._idle, []
        for mailbox in idle:
            mailbox.put(None)
