"""The view's source: one list, then one watch from the list's revision on; again where it breaks."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rink.core import codec
from rink.core.backoff import backoff
from rink.core.events import Changed, Event, HistoryChanged, Listed, ListFailed, Nudged
from rink.core.keys import Keys
from rink.core.values import Entry
from rink.core.view import gone
from rink.engine.calls import Calls
from rink.engine.clock import Clock
from rink.errors import EtcdClusterChanged, EtcdCompacted, RinkError
from rink.etcd.api import Etcd, KeyValue, Watch, WatchBroken, WatchEvents

log = logging.getLogger("rink")


def read_entry(keys: Keys, kv: KeyValue) -> Entry:
    """Turn what etcd holds into an entry of the view."""
    return codec.read(keys.root, kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)


class Follower:
    """Brings `Listed` and `Changed` events of one group to an engine.

    Driven by the engine's thread: `start`, `again` when `wake_at` comes, `close`. What is delivered
    carries the number of the list it follows, so that a watch which was given up is not heard.
    """

    def __init__(
        self, etcd: Etcd, keys: Keys, calls: Calls, clock: Clock, post: Callable[[Event], None]
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._calls = calls
        self._clock = clock
        self._post = post
        self._watch: Watch | None = None
        self._round = 0
        self._failures = 0
        self.wake_at: float | None = None

    def start(self) -> None:
        """List the group, and follow it from there."""
        self.wake_at = None
        self._round += 1
        self._end_watch()
        number = self._round
        self._calls.submit(lambda: self._list(number))

    def restart_soon(self) -> None:
        """List anew after a while: something broke."""
        self._failures += 1
        self._round += 1
        self._end_watch()
        self.wake_at = self._clock.now() + backoff(self._failures, self._keys.root.decode())

    def close(self) -> None:
        """Bring no more."""
        self._round += 1
        self.wake_at = None
        self._end_watch()

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            self._calls.submit(watch.close)  # may wait for a delivery under way

    def _list(self, number: int) -> None:
        try:
            found = self._etcd.range(self._keys.root, self._keys.end)
        except EtcdClusterChanged as error:
            self._post(HistoryChanged(str(error)))
            return
        except RinkError as error:
            if number == self._round:
                self._post(ListFailed(error))
            return
        if number != self._round:
            return
        entries = tuple(read_entry(self._keys, kv) for kv in found.kvs)
        self._post(Listed(found.header.revision, entries))
        self._failures = 0
        self._watch = self._etcd.watch(
            self._keys.root,
            self._keys.end,
            found.header.revision + 1,
            lambda message: self._deliver(number, message),
        )
        if number != self._round:
            self._end_watch()  # closed meanwhile

    def _deliver(self, number: int, message: WatchEvents | WatchBroken) -> None:
        if number != self._round:
            return
        if isinstance(message, WatchEvents):
            changes = tuple(
                gone(read_entry(self._keys, event.kv))
                if event.deleted
                else read_entry(self._keys, event.kv)
                for event in message.events
            )
            self._post(Changed(message.revision, changes))
        elif isinstance(message.error, EtcdClusterChanged):
            self._post(HistoryChanged(str(message.error)))
        elif isinstance(message.error, EtcdCompacted):
            log.info("rink: watch of %s: %s; lists anew", self._keys.root.decode(), message.error)
            self.wake_at = self._clock.now()
            self._post(Nudged())
        else:
            self._post(ListFailed(message.error))
