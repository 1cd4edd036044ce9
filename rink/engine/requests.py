"""Make the core's requests to etcd, and post their outcomes as events.

Every request ends in an event, except a successful `Prune` or `RemoveRecord`. Either branch of an
answered transaction is an answer (R1), but an error is none.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import uuid
from collections.abc import Callable

import attrs

from rink.core import codec
from rink.core import effects as do
from rink.core import events as ev
from rink.core.effects import Effect
from rink.core.events import MemberEvent
from rink.core.keys import Keys
from rink.core.values import Member
from rink.engine.clock import Clock
from rink.engine.group_watch import read_entry
from rink.engine.request_threads import RequestThreads
from rink.errors import EtcdClusterChanged, RinkError
from rink.etcd.api import Compare, Delete, Etcd, Get, KeyValue, Put, TxnTarget

log = logging.getLogger("rink")


class Requests:
    """Make a core's requests to etcd, on `request_threads`.

    The read of this member's record has threads of its own, `read_threads`. Renewals wait for this
    read (R11). On the other threads it could wait behind requests of other groups that hang.
    """

    def __init__(
        self,
        etcd: Etcd,
        keys: Keys,
        name: str,
        request_threads: RequestThreads,
        read_threads: RequestThreads,
        clock: Clock,
        post: Callable[[MemberEvent], None],
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._own = keys.member(name)
        self._request_threads = request_threads
        self._read_threads = read_threads
        self._clock = clock
        self._post = post

    def carry_out(self, effect: Effect) -> None:
        """Make a request, and post its outcome."""
        is_read = isinstance(effect, do.ReadRecord)
        threads = self._read_threads if is_read else self._request_threads
        threads.submit(lambda: self._make(effect))

    def _make(self, effect: Effect) -> None:
        try:
            event = self._ask(effect)
        except EtcdClusterChanged as error:
            self._post(ev.HistoryChanged(str(error)))
            event = _failed(effect, error)
        except RinkError as error:
            event = _failed(effect, error)
        except Exception as error:
            name = type(effect).__name__
            log.exception("request %s failed with an unexpected error; please report it", name)
            event = _failed(effect, error)
        if event is not None:
            self._post(event)

    def _ask(self, effect: Effect) -> MemberEvent | None:
        match effect:
            case do.GrantLease(ttl=ttl):
                return self._grant(ttl)
            case do.RevokeLease(lease=lease):
                self._etcd.revoke(lease)
                return ev.LeaseRevoked(lease)
            case do.WriteRecord():
                return self._write(effect)
            case do.Proclaim():
                return self._proclaim(effect)
            case do.ReadRecord(lease=lease, call=call, mod_revision=mod_revision):
                timeout = min(self._etcd.timeout, effect.within_s)
                record = self._member(self._etcd.range(self._own, timeout=timeout).kvs)
                return ev.RecordRead(lease, call, mod_revision, record)
            case do.PostRequest(id=request_id, request=request):
                key = self._keys.request(request_id)
                put = Put(key, codec.encode(request))
                self._etcd.txn((Compare(key, TxnTarget.CREATE, 0),), (put,))
                return ev.RequestPosted()
            case do.Prune(below=below):
                self._etcd.txn((), (Delete(self._keys.version(0), self._keys.version(below)),))
            case do.LookUpLease(name=name, mod_revision=mod_revision, lease=lease):
                known = self._etcd.time_to_live(lease) >= 0
                return ev.LeaseLookedUp(name, mod_revision, known)
            case do.RemoveRecord(name=name, mod_revision=mod_revision):
                key = self._keys.member(name)
                self._etcd.txn((Compare(key, TxnTarget.MOD, mod_revision),), (Delete(key),))
        return None

    def _grant(self, ttl: int) -> MemberEvent:
        """Grant a lease by an id that can be revoked even without an answer."""
        lease = secrets.randbits(62) or 1
        sent_at = self._clock.now()
        try:
            granted = self._etcd.grant(ttl, lease=lease)
        except RinkError:
            self._request_threads.submit(lambda: self._forget(lease))
            raise
        return ev.LeaseGranted(granted.lease, granted.ttl, sent_at, str(uuid.uuid4()))

    def _forget(self, lease: int) -> None:
        """Revoke a lease that may exist, by one try: it ends by itself anyway."""
        with contextlib.suppress(RinkError):
            self._etcd.revoke(lease)

    def _write(self, effect: do.WriteRecord) -> MemberEvent:
        key = self._own
        result = self._etcd.txn(
            (Compare(key, TxnTarget.MOD, effect.compare),),
            (Put(key, codec.encode(effect.record), effect.lease),),
            (Get(key),),
        )
        if result.succeeded:
            return ev.WriteAnswered(effect.attempt, True, result.header.revision)
        record = self._member(result.results[0])
        return ev.WriteAnswered(effect.attempt, False, result.header.revision, record)

    def _member(self, kvs: tuple[KeyValue, ...]) -> Member | None:
        entry = read_entry(self._keys, kvs[0]) if kvs else None
        return entry if isinstance(entry, Member) else None

    def _proclaim(self, effect: do.Proclaim) -> MemberEvent:
        version = attrs.evolve(effect.version, proclaimed=self._clock.wall())
        key = self._keys.version(version.number)
        guards = [
            Compare(self._own, TxnTarget.CREATE, effect.create_revision),
            Compare(key, TxnTarget.CREATE, 0),
        ]
        if version.number > 1:
            before = self._keys.version(version.number - 1)
            guards.append(Compare(before, TxnTarget.MOD, effect.after))
        requests = tuple(Delete(self._keys.request(request)) for request in effect.requests)
        result = self._etcd.txn(tuple(guards), (Put(key, codec.encode(version)), *requests))
        return ev.ProclaimAnswered(version.number, result.succeeded)


def _failed(effect: Effect, error: Exception) -> MemberEvent | None:
    match effect:
        case do.GrantLease():
            return ev.LeaseFailed(error)
        case do.RevokeLease(lease=lease):
            return ev.RevokeFailed(lease, error)
        case do.WriteRecord(attempt=attempt):
            return ev.WriteFailed(attempt, error)
        case do.Proclaim(version=version):
            return ev.ProclaimFailed(version.number, error)
        case do.ReadRecord(lease=lease, call=call):
            return ev.RecordReadFailed(lease, call, error)
        case do.PostRequest():
            return ev.PostFailed(error)
        case do.Prune():
            return ev.ChoreFailed("pruning old versions", error)
        case do.LookUpLease():
            return ev.ChoreFailed("looking up the leases of other members", error)
        case do.RemoveRecord(name=name):
            return ev.ChoreFailed(f"removing the dead record members/{name}", error)
    return None
