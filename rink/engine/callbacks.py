"""Call user callbacks on a thread of their own.

A callback that is slow or raises holds up only the callbacks after it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import attrs

from rink.core.holds import Hold
from rink.engine.clock import Clock, Mailbox

log = logging.getLogger("rink")

_ListenerCall = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""Hold a callback, its arguments, and the `extra` of a log line about it."""


@attrs.frozen
class Listeners:
    """Hold the user's callbacks."""

    on_coordinator_change: Callable[[bool], Any] | None = None
    on_rank_change: Callable[[int | None], Any] | None = None
    on_role_change: Callable[[str, bool], Any] | None = None


class Callbacks:
    """Call the listeners in order, on one thread.

    Without listeners there is no thread. `about` is the `extra` of a log line about the member,
    with its `group`.
    """

    def __init__(self, clock: Clock, listeners: Listeners, about: dict[str, Any]) -> None:
        self._clock = clock
        self._listeners = listeners
        self._about = about
        self._mailbox: Mailbox[_ListenerCall | None] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Start the thread, at the join: none can be started at the exit."""
        if self._listeners == Listeners():
            return
        self._mailbox = self._clock.mailbox()
        run, name = partial(self._run, self._mailbox), f"rink-callbacks-{self._about['group']}"
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def granted(self, holds: Iterable[Hold]) -> None:
        """Post the callback for each grant.

        The caller holds the engine's lock, so no loss is posted before its grant.
        """
        for hold in holds:
            self._post(self._listeners.on_role_change, hold.role, True, hold=hold)

    def lost(self, hold: Hold) -> None:
        """Post the callback for a loss."""
        self._post(self._listeners.on_role_change, hold.role, False, hold=hold)

    def ranked(self, rank: int | None) -> None:
        """Post the callback for a new rank."""
        self._post(self._listeners.on_rank_change, rank)

    def coordinates(self, coordinates: bool) -> None:
        """Post the callback for the begin or end of this member's coordination."""
        self._post(self._listeners.on_coordinator_change, coordinates)

    def _post(
        self, callback: Callable[..., Any] | None, *args: Any, hold: Hold | None = None
    ) -> None:
        if callback is None:
            return
        about = self._about
        if hold is not None:
            about = about | {"role": hold.role, "token": hold.token, "version": hold.version}
        with self._lock:
            if self._mailbox is not None and not self._closed:
                self._mailbox.put((callback, args, about))

    def is_here(self) -> bool:
        """Return whether the caller runs on the callbacks' thread.

        There a blocking call would wait for itself.
        """
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the thread after the callbacks that were posted."""
        with self._lock:
            self._closed = True
            if self._mailbox is not None:
                self._mailbox.put(None)

    def _run(self, mailbox: Mailbox[_ListenerCall | None]) -> None:
        while True:
            for item in mailbox.take(None):
                if item is None:
                    mailbox.close()
                    return
                callback, args, about = item
                try:
                    callback(*args)
                except BaseException:  # sys.exit() here must not end the worker in silence
                    name = getattr(callback, "__qualname__", repr(callback))
                    log.exception("callback %s%r raised", name, args, extra=about)
