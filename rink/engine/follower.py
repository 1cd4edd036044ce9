"""The view's source: one list, then one watch from the list's revision on; again where it breaks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rink.core import codec
from rink.core.backoff import backoff
from rink.core.events import Changed, Event, HistoryChanged, Listed, ListFailed, Nudged
from rink.core.keys import Keys
from rink.core.values import Entry
from rink.core.view import View, gone
from rink.engine.calls import Calls
from rink.engine.clock import Clock
from rink.errors import EtcdClusterChanged, EtcdCompacted, RinkError, StateError
from rink.etcd.api import Etcd, KeyValue, Watch, WatchBroken, WatchEvents

log = logging.getLogger("rink")

OPEN_WITHIN_S = 1.0
"""How long a list is kept back for the watch behind it to be open."""


def read_entry(keys: Keys, kv: KeyValue) -> Entry:
    """Turn what etcd holds into an entry of the view."""
    return codec.read(keys.root, kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)


def read_group(etcd: Etcd, keys: Keys) -> View:
    """Read a group once.

    Raises:
        EtcdError: no answer, or refused.
    """
    found = etcd.range(keys.root, keys.end)
    return View.listed(found.header.revision, [read_entry(keys, kv) for kv in found.kvs])


def unknown_group(group: str, keys: Keys) -> StateError:
    """Return the error of a group that has no keys."""
    root = keys.root.decode()
    return StateError(f"there is no group {group!r}: etcd has no key under {root!r}", key=root)


class Follower:
    """Brings `Listed` and `Changed` events of one group to an engine.

    Driven by the engine's thread: `start`, again when `wake_at` comes, `close`. Lists are numbered,
    and what an earlier list or its watch has to say is not posted once the next one has begun: so
    the revisions that one engine is told of only go up, unless etcd's history went back.

    A list is told once the watch behind it is open. It may be told before, but etcd brings a watch
    that was opened behind a write up to date only ten times a second: and a member that has a list
    writes its record, so that its own join, or the first version it is in, came 100 ms late.
    """

    def __init__(
        self, etcd: Etcd, keys: Keys, calls: Calls, clock: Clock, post: Callable[[Event], None]
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._calls = calls
        self._clock = clock
        self._post = post
        self._lock = threading.Lock()  # of what follows, and of posting what belongs to the round
        self._watch: Watch | None = None
        self._round = 0
        self._is_told = False  # the round's list
        self._early: list[Event] = []  # of the watch, before that
        self._failures = 0
        self.wake_at: float | None = None

    def start(self) -> None:
        """List the group, and follow it from there."""
        self.wake_at = None
        number = self._next_round()
        self._calls.submit(lambda: self._list(number))

    def restart_soon(self) -> None:
        """List anew after a while: something broke."""
        self._failures += 1
        self._next_round()
        self.wake_at = self._clock.now() + backoff(self._failures, self._keys.root.decode())

    def close(self) -> None:
        """Bring no more."""
        self._next_round()
        self.wake_at = None

    def _next_round(self) -> int:
        with self._lock:
            self._round += 1
            number, watch, self._watch = self._round, self._watch, None
            self._is_told, self._early = False, []
        if watch is not None:
            self._calls.submit(watch.close)  # may wait for a delivery under way
        return number

    def _tell_list(self, number: int, event: Listed | ListFailed | HistoryChanged) -> None:
        """Post what became of a round's list, unless the round is over, and what was kept back."""
        with self._lock:
            if number == self._round:
                self._is_told = True
                self._post(event)
                for early in self._early:
                    self._post(early)

    def _say(self, number: int, event: Event) -> None:
        """Post what a round's watch has to say, unless the round is over; the list comes first."""
        with self._lock:
            if number != self._round:
                return
            if self._is_told:
                self._post(event)
            else:
                self._early.append(event)

    def _list(self, number: int) -> None:
        try:
            found = self._etcd.range(self._keys.root, self._keys.end)
            entries = tuple(read_entry(self._keys, kv) for kv in found.kvs)
            watch = self._etcd.watch(
                self._keys.root,
                self._keys.end,
                found.header.revision + 1,
                lambda message: self._deliver(number, message),
            )
        except Exception as error:
            if not isinstance(error, RinkError):
                log.exception("rink: listing %s failed unexpectedly", self._keys.root.decode())
            self._tell_list(number, _broken(error))  # whatever it was: a member must not go blind
            return
        with self._lock:
            is_current = number == self._round
            if is_current:
                self._watch, self._failures = watch, 0
        if not is_current:
            watch.close()
            return
        watch.wait_open(OPEN_WITHIN_S)
        self._tell_list(number, Listed(found.header.revision, entries))

    def _deliver(self, number: int, message: WatchEvents | WatchBroken) -> None:
        if isinstance(message, WatchEvents):
            changes = tuple(
                gone(read_entry(self._keys, event.kv))
                if event.deleted
                else read_entry(self._keys, event.kv)
                for event in message.events
            )
            self._say(number, Changed(message.revision, changes))
        elif isinstance(message.error, EtcdCompacted):
            log.info("rink: watch of %s: %s; lists anew", self._keys.root.decode(), message.error)
            self.wake_at = self._clock.now()
            self._say(number, Nudged())
        else:
            self._say(number, _broken(message.error))


def _broken(error: Exception) -> ListFailed | HistoryChanged:
    if isinstance(error, EtcdClusterChanged):
        return HistoryChanged(str(error))
    return ListFailed(error)
