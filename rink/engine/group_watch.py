"""The view's source: a watch, then a list, and what the watch brings after it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rink.core import codec
from rink.core.events import Changed, Event, HistoryChanged, Listed, ListFailed
from rink.core.keys import Keys
from rink.core.retry_delay import backoff
from rink.core.values import Entry
from rink.core.view import View, gone
from rink.engine.clock import Clock
from rink.engine.request_threads import RequestThreads
from rink.errors import EtcdClusterChanged, EtcdUnavailable, RinkError, StateError
from rink.etcd.api import Etcd, KeyValue, Watch, WatchBroken, WatchEvents, WatchOpened

log = logging.getLogger("rink")


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


class GroupWatch:
    """Brings `Listed` and `Changed` events of one group to an engine.

    Driven by the engine's thread: `start`, again when `wake_at` comes, `close`.

    **First the watch, then the list** (R11). A call of a watch lies within one history of etcd,
    since it breaks when its server ends. So a list that was asked for while the call is open is of
    that history, and so is all that the call brings. Where the watch opens a call and cannot say
    that its history is the same, it says `WatchOpened`, and the group is listed again.

    A **round** is one watch and its lists. Changes that the watch brings while a list is
    under way are posted after the list, since the view before may be of another history. Whatever
    an earlier round or an earlier list brings is not posted at all. So the revisions that one
    engine sees only go up, unless etcd's history went back.
    """

    def __init__(
        self,
        etcd: Etcd,
        keys: Keys,
        request_threads: RequestThreads,
        clock: Clock,
        post: Callable[[Event], None],
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._request_threads = request_threads
        self._clock = clock
        self._post = post
        self._lock = threading.Lock()  # of what follows, and of posting what belongs to the round
        self._watch: Watch | None = None
        self._round = 0
        self._lists = 0  # how many were asked for; only the last one counts
        self._is_told = False  # the last list
        self._listed = 0  # its revision
        self._early: list[Event] = []  # of the watch, before that
        self._wanted = 0
        self._epoch = etcd.epoch  # of the last list, or of the last change that was told
        self._failures = 0
        self.wake_at: float | None = None

    def start(self) -> None:
        """Follow the group from a new list on."""
        self.wake_at = None
        number = self._next_round()
        self._request_threads.submit(lambda: self._open(number))

    def list_anew(self, wanted: int) -> None:
        """List the group anew, now or with the start that is already due.

        Args:
            wanted: the number that all later lists carry. A member that threw its view away sees by
                it which lists were asked for afterwards.
        """
        self._wanted = wanted
        if self.wake_at is None:
            self.start()

    def history_told(self) -> None:
        """Note that a change of history was told, whoever found it."""
        with self._lock:
            self._epoch = self._etcd.epoch

    def restart_soon(self) -> None:
        """Follow from a new list on after a while: something broke."""
        self._failures += 1
        self._next_round()
        self.wake_at = self._clock.now() + backoff(self._failures, self._keys.root.decode())

    def mute(self) -> None:
        """Deliver no more events of this round.

        Its watch stays until the next round, or the close.
        """
        with self._lock:
            self._round += 1

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
            self._request_threads.submit(watch.close)  # may wait for a delivery under way
        return number

    # ── the watch ────────────────────────────────────────────────────────────────────────────

    def _open(self, number: int) -> None:
        root = self._keys.root
        try:
            watch = self._etcd.watch(root, self._keys.end, 0, lambda one: self._hear(number, one))
        except Exception as error:
            self._report(number, error, "watching")
            return
        with self._lock:
            is_current = number == self._round
            if is_current:
                self._watch = watch
                watch.note_list(self._listed if self._is_told else None)
        if not is_current:
            watch.close()
        elif not watch.wait_open(self._etcd.timeout):
            text = f"the watch of {root.decode()} has not opened within {self._etcd.timeout:g} s"
            why = f" ({watch.trouble})" if watch.trouble else ""
            self._report(number, EtcdUnavailable(text + why), "watching")

    def _hear(self, number: int, message: WatchOpened | WatchEvents | WatchBroken) -> None:
        if number != self._round:
            return  # decoding it would be for nobody
        match message:
            case WatchOpened():
                self._begin_list(number)
            case WatchEvents(revision, events):
                changes = tuple(
                    gone(read_entry(self._keys, event.kv))
                    if event.deleted
                    else read_entry(self._keys, event.kv)
                    for event in events
                )
                self._tell(number, Changed(revision, changes))
            case WatchBroken(error):
                self._report(number, error, "watching")

    def _tell(self, number: int, changed: Changed) -> None:
        with self._lock:
            if number != self._round:
                return
            if self._is_told:
                self._post(changed)
            else:
                self._early.append(changed)

    # ── the list ─────────────────────────────────────────────────────────────────────────────

    def _begin_list(self, number: int) -> None:
        with self._lock:
            if number != self._round:
                return
            self._lists += 1
            self._is_told, self._early = False, []
            if self._watch is not None:  # else it is told when it is there
                self._watch.note_list(None)
            asked, wanted = self._lists, self._wanted
        self._request_threads.submit(lambda: self._list(number, asked, wanted))

    def _list(self, number: int, asked: int, wanted: int) -> None:
        try:
            found = self._etcd.range(self._keys.root, self._keys.end)
            entries = tuple(read_entry(self._keys, kv) for kv in found.kvs)
        except Exception as error:  # whatever it was: a member must not go blind
            if asked == self._lists:
                self._report(number, error, "listing")
            return
        with self._lock:
            if number != self._round or asked != self._lists:
                return
            if self._etcd.epoch != self._epoch:
                # The answer to another call, such as a keepalive, has shown it. The watch that
                # would report it may be closed, and this round's watch began afterwards.
                self._post(
                    HistoryChanged("another etcd cluster answers, or an earlier state of it")
                )
                return
            self._failures, self._is_told, self._listed = 0, True, found.header.revision
            if self._watch is not None:
                self._watch.note_list(self._listed)
            self._post(Listed(self._listed, entries, wanted))
            for early in self._early:
                self._post(early)

    def _report(self, number: int, error: Exception, doing: str) -> None:
        """Post that the round is over, unless another one has begun."""
        if not isinstance(error, RinkError):
            log.error("%s %s failed", doing, self._keys.root.decode(), exc_info=error)
        with self._lock:
            if number == self._round:
                self._post(_broken(error))


def _broken(error: Exception) -> ListFailed | HistoryChanged:
    if isinstance(error, EtcdClusterChanged):
        return HistoryChanged(str(error))
    return ListFailed(error)
