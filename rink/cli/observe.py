"""Read or follow a group without being a member.

An observer takes no lease, has no record and writes no key. To follow a group, it drives the
engine's own `GroupWatch`. It also checks periodically that etcd still answers. A watch is silent
during an outage, so the display would look like a group without events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import attrs

from rink.core import keys as names
from rink.core.events import Changed, HistoryChanged, Listed, ListFailed, MemberEvent
from rink.core.keys import Keys
from rink.core.scheme_prefetch import view_after
from rink.core.view import View
from rink.engine.clock import Clock, Mailbox
from rink.engine.group_watch import GroupWatch, read_entry
from rink.engine.request_threads import RequestThreads
from rink.errors import EtcdClusterChanged, RinkError
from rink.etcd.api import Etcd, KeyValue


@attrs.frozen
class Trouble:
    """Report why the view may be out of date; an empty text ends the trouble."""

    text: str


def is_empty(view: View) -> bool:
    """Return whether the group has no key at all."""
    return not (view.members or view.versions or view.requests or view.clutter)


@attrs.frozen
class Groups:
    """Hold the groups under a prefix, and the keys that belong to no group."""

    revision: int
    views: Mapping[str, View]
    strays: tuple[str, ...]


def read_groups(etcd: Etcd, prefix: str) -> Groups:
    """Read all groups under a prefix, with one request.

    Raises:
        EtcdError: etcd did not answer, or refused the request.
    """
    root = prefix.encode()
    answer = etcd.range(root, root[:-1] + b"0")
    revision = answer.header.revision
    segments: dict[bytes, list[KeyValue]] = {}
    for kv in answer.kvs:
        segments.setdefault(kv.key.removeprefix(root).partition(b"/")[0], []).append(kv)
    views: dict[str, View] = {}
    strays: list[str] = []
    for segment, kvs in segments.items():
        if names.is_beside_group(segment.decode(errors="replace")):
            continue  # offsets of partitions or slots: keys beside a group, not a group
        group = names.decode_name(segment.decode(errors="replace"))
        keys = Keys.of(prefix, group) if group is not None else Keys(root)
        view = View.listed(revision, [read_entry(keys, kv) for kv in kvs])
        if group is None or len(view.clutter) == len(kvs):
            strays += [kv.key.decode(errors="backslashreplace") for kv in kvs]
        else:
            views[group] = view
    return Groups(revision, views, tuple(strays))


@contextlib.contextmanager
def following(
    etcd: Etcd, keys: Keys, clock: Clock, quiet_s: float, until: float | None = None
) -> Iterator[Iterator[View | Trouble]]:
    """Follow a group by an iterator of views.

    The iterator also yields a `Trouble` while the views may be out of date. After `quiet_s` without
    an event, it checks that etcd still answers. It ends at the time `until`, but not before the
    first view.

    Raises:
        EtcdError: from the iterator, if the group could not be read the first time. Later errors
            are yielded as `Trouble`, and the iterator continues.
    """
    calls = RequestThreads(clock)
    mailbox: Mailbox[MemberEvent] = clock.mailbox()
    follower = GroupWatch(etcd, keys, calls, clock, mailbox.put)
    follower.start()
    try:
        yield _Following(etcd, keys, clock, quiet_s, until, mailbox, follower).run()
    finally:
        follower.close()
        calls.close()
        mailbox.close()


@attrs.define
class _Following:
    etcd: Etcd
    keys: Keys
    clock: Clock
    quiet_s: float
    until: float | None
    mailbox: Mailbox[MemberEvent]
    follower: GroupWatch
    view: View | None = None
    trouble: str = ""

    def run(self) -> Iterator[View | Trouble]:
        # A watch would wait for a missing etcd. This request fails with the reason.
        self.etcd.range(self.keys.root, self.keys.end)
        while not self._is_over():
            events = self.mailbox.take(self._next_look())
            for event in events:
                yield from self._take(event)
            wake_at = self.follower.wake_at
            if wake_at is not None and wake_at <= self.clock.now():
                self.follower.start()
            elif not events and not self._is_over():
                yield from self._probe()

    def _is_over(self) -> bool:
        if self.until is None or self.view is None:
            return False
        return self.clock.now() >= self.until

    def _next_look(self) -> float:
        moments = [self.clock.now() + self.quiet_s, self.follower.wake_at]
        moments.append(self.until if self.view is not None else None)
        return min(moment for moment in moments if moment is not None)

    def _take(self, event: MemberEvent) -> Iterator[View | Trouble]:
        match event:
            case Listed(revision, entries):
                self.view = View.listed(revision, entries)
                yield from self._is(self.view)
            case Changed() if self.view is not None:
                # This ignores events that the list contained.
                self.view = view_after(self.view, event)
                yield from self._is(self.view)
            case HistoryChanged(reason):
                self.follower.history_told()
                self.follower.start()
                yield from self._is_troubled(reason)
            case ListFailed(error):
                if self.view is None:
                    raise error
                self.follower.restart_soon()
                yield from self._is_troubled(str(error))

    def _probe(self) -> Iterator[View | Trouble]:
        if self.view is None:
            return  # the first list is in flight, and fails by itself
        try:
            self.etcd.range(self.keys.root)
        except EtcdClusterChanged as error:
            # The client raises this error once. The watch may have missed it, so list anew.
            yield from self._take(HistoryChanged(str(error)))
        except RinkError as error:
            yield from self._is_troubled(str(error))
        else:
            if self.trouble and self.follower.wake_at is None:
                yield from self._is(None)

    def _is(self, view: View | None) -> Iterator[View | Trouble]:
        if self.trouble:
            self.trouble = ""
            yield Trouble("")
        if view is not None:
            yield view

    def _is_troubled(self, text: str) -> Iterator[Trouble]:
        if not self.trouble:
            yield Trouble(text)
        self.trouble = text
