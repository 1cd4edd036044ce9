"""Follow a group's keys: open a watch, list them, then take changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rink.core import codec
from rink.core.events import Changed, HistoryChanged, Listed, ListFailed, MemberEvent
from rink.core.keys import Keys
from rink.core.retry_delay import backoff
from rink.core.values import Entry
from rink.core.view import gone
from rink.engine.clock import Clock
from rink.engine.request_threads import RequestThreads
from rink.errors import EtcdClusterChanged, EtcdUnavailable, RinkError
from rink.etcd.api import Etcd, KeyValue, Watch, WatchBroken, WatchEvents, WatchOpened

log = logging.getLogger("rink")


def read_entry(keys: Keys, kv: KeyValue) -> Entry:
    """Decode a key and its value as an entry of the view."""
    return codec.read(keys.root, kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)


class GroupWatch:
    """Post `Listed` and `Changed` events of one group to an engine.

    The engine's thread calls `start`, calls it again at `wake_at`, and calls `close` at the end.

    **First the watch, then the list** (R11). A call of a watch lies within one history of etcd,
    since it breaks when its server ends. So a list that was requested while the call is open is of
    that history, and so are all changes of the call. If the watch opens a call and cannot prove
    that the history is the same, it delivers `WatchOpened`, and the group is listed again.

    A **round** is one watch and its lists. Changes that arrive during a list are posted after the
    list, since the view before the list may be of another history. Messages of an earlier round or
    an earlier list are dropped. So the revisions that one engine sees only go up, unless etcd's
    history went back.
    """

    def __init__(
        self,
        etcd: Etcd,
        keys: Keys,
        request_threads: RequestThreads,
        clock: Clock,
        post: Callable[[MemberEvent], None],
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._request_threads = request_threads
        self._clock = clock
        self._post = post
        # Guards the attributes below. Events are posted under it, so none follows its round's end.
        self._lock = threading.Lock()
        self._watch: Watch | None = None
        self._round = 0
        self._lists = 0  # the number of requested lists; only the newest counts
        self._is_list_posted = False  # True once the newest list was posted
        self._listed = 0  # the revision of the newest list
        self._early: list[MemberEvent] = []  # changes that came before that list was posted
        self._wanted = 0
        self._epoch = etcd.epoch  # at the last list, or the last posted change of history
        self._failures = 0
        self.wake_at: float | None = None

    def start(self) -> None:
        """Begin a new round."""
        self.wake_at = None
        number = self._next_round()
        self._request_threads.submit(lambda: self._open(number))

    def list_anew(self, wanted: int) -> None:
        """List the group again, now or with the restart that is scheduled.

        All later lists carry the number `wanted`. By this number, a member that dropped its view
        knows which lists were requested afterwards.
        """
        self._wanted = wanted
        if self.wake_at is None:
            self.start()

    def history_told(self) -> None:
        """Note that the engine knows of the change of history."""
        with self._lock:
            self._epoch = self._etcd.epoch

    def restart_soon(self) -> None:
        """Schedule a new round after a failure, with backoff."""
        self._failures += 1
        self._next_round()
        self.wake_at = self._clock.now() + backoff(self._failures, self._keys.root.decode())

    def mute(self) -> None:
        """Post no more events of this round, whose watch stays open meanwhile."""
        with self._lock:
            self._round += 1

    def close(self) -> None:
        """End the round and its watch."""
        self._next_round()
        self.wake_at = None

    def _next_round(self) -> int:
        with self._lock:
            self._round += 1
            number, watch, self._watch = self._round, self._watch, None
            self._is_list_posted, self._early = False, []
        if watch is not None:
            self._request_threads.submit(watch.close)  # may wait for a delivery under way
        return number

    # ── the watch ────────────────────────────────────────────────────────────────────────────

    def _open(self, number: int) -> None:
        root = self._keys.root
        try:
            watch = self._etcd.watch(root, self._keys.end, 0, lambda m: self._hear(number, m))
        except Exception as error:
            self._report(number, error, "watching")
            return
        with self._lock:
            is_current = number == self._round
            if is_current:
                self._watch = watch
                watch.note_list(self._listed if self._is_list_posted else None)
        if not is_current:
            watch.close()
        elif not watch.wait_open(self._etcd.timeout):
            text = f"the watch of {root.decode()} has not opened within {self._etcd.timeout:g} s"
            why = f" ({watch.trouble})" if watch.trouble else ""
            self._report(number, EtcdUnavailable(text + why), "watching")

    def _hear(self, number: int, message: WatchOpened | WatchEvents | WatchBroken) -> None:
        if number != self._round:
            return  # nobody would use the decoded message
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
                self._post_changes(number, Changed(revision, changes))
            case WatchBroken(error):
                self._report(number, error, "watching")

    def _post_changes(self, number: int, changed: Changed) -> None:
        with self._lock:
            if number != self._round:
                return
            if self._is_list_posted:
                self._post(changed)
            else:
                self._early.append(changed)

    # ── the list ─────────────────────────────────────────────────────────────────────────────

    def _begin_list(self, number: int) -> None:
        with self._lock:
            if number != self._round:
                return
            self._lists += 1
            self._is_list_posted, self._early = False, []
            if self._watch is not None:  # otherwise `_open` calls note_list
                self._watch.note_list(None)
            attempt, wanted = self._lists, self._wanted
        self._request_threads.submit(lambda: self._list(number, attempt, wanted))

    def _list(self, number: int, attempt: int, wanted: int) -> None:
        try:
            result = self._etcd.range(self._keys.root, self._keys.end)
            entries = tuple(read_entry(self._keys, kv) for kv in result.kvs)
        except Exception as error:  # after any error, the member must get a new list
            if attempt == self._lists:
                self._report(number, error, "listing")
            return
        with self._lock:
            if number != self._round or attempt != self._lists:
                return
            if self._etcd.epoch != self._epoch:
                # The answer to another call, such as a keepalive, showed the change of history. The
                # watch that would report it may be closed, and this round's watch began afterwards.
                because = "another etcd cluster answers, or etcd was restored to an earlier state"
                self._post(HistoryChanged(because))
                return
            self._failures, self._is_list_posted = 0, True
            self._listed = result.header.revision
            if self._watch is not None:
                self._watch.note_list(self._listed)
            self._post(Listed(self._listed, entries, wanted))
            for early in self._early:
                self._post(early)

    def _report(self, number: int, error: Exception, doing: str) -> None:
        """Post that this round failed, unless a new round has begun."""
        if not isinstance(error, RinkError):
            log.error("%s %s failed", doing, self._keys.root.decode(), exc_info=error)
        with self._lock:
            if number == self._round:
                is_changed = isinstance(error, EtcdClusterChanged)
                self._post(HistoryChanged(str(error)) if is_changed else ListFailed(error))
