"""User callbacks, on a worker of their own: they may be slow, and may raise, and harm nobody."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from rink.engine.clock import Clock, Mailbox

log = logging.getLogger("rink")

_Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Callbacks:
    """One thread that calls them in order; `start` it where there are any."""

    def __init__(self, clock: Clock, name: str) -> None:
        self._clock = clock
        self._name = name
        self._mailbox: Mailbox[_Call | None] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Start the thread: at the join, since none can be started when the interpreter exits."""
        self._mailbox = self._clock.mailbox()
        self._thread = threading.Thread(
            target=self._run,
            args=(self._mailbox,),
            name=f"rink-callbacks-{self._name}",
            daemon=True,
        )
        self._thread.start()

    def post(self, callback: Callable[..., Any] | None, *args: Any) -> None:
        """Have a callback called; None is no callback."""
        with self._lock:
            if callback is not None and self._mailbox is not None and not self._closed:
                self._mailbox.put((callback, args))

    def is_here(self) -> bool:
        """Whether this very thread is the worker, so that a blocking call would wait for itself."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """Call what was posted, and end."""
        with self._lock:
            self._closed = True
            if self._mailbox is not None:
                self._mailbox.put(None)

    def _run(self, mailbox: Mailbox[_Call | None]) -> None:
        while True:
            for item in mailbox.take(None):
                if item is None:
                    mailbox.close()
                    return
                callback, args = item
                try:
                    callback(*args)
                except BaseException:  # sys.exit() here must not end the worker in silence
                    name = getattr(callback, "__qualname__", repr(callback))
                    log.exception("rink: callback %s%r raised", name, args)
