"""Run a scheduled job at most once per slot: `--once-per`.

A role alone ensures that no other host runs the job at the same time. Hosts whose clocks differ
would still run a short job one after the other. So the holder of the role writes `started` under
the slot's key before it starts the command, and `done` after it.

The writes keep these rules:

* Each write compares the create revision of the member's record. So a paused member whose lease has
  ended writes nothing.
* Each write compares the `mod_revision` of the slot's key. So only one of several writes of
  `started` is applied.
* The value names the run. So a repeated write, after a lost answer, is recognised.

This module has no threads and no retries. The supervisor calls it on a thread.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import attrs

from rink.core.keys import SlotKeys
from rink.core.values import FORMAT
from rink.errors import RoleLost, StateError
from rink.etcd.api import Compare, Delete, Etcd, Get, KeyValue, Put, TxnTarget

MAX_KEPT_SLOTS = 100
"""The number of a role's slots that stay in etcd. Clocks must differ by fewer slots than this."""

MAX_DELETIONS = 100
"""The maximum number of slots deleted at once. etcd allows 128 operations in a transaction."""


def wall_time() -> str:
    """Return the wall-clock time for people, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def new_run() -> str:
    """Return a name that distinguishes one run from any other."""
    return secrets.token_hex(8)


@attrs.frozen(kw_only=True)
class Slot:
    """Hold the value of a slot's key.

    Attributes:
        run: a name that distinguishes this run from any other.
        code: the exit code of the command, or None while it has not ended by itself.
    """

    token: int
    member: str
    run: str = attrs.field(factory=new_run)
    started: str = attrs.field(factory=wall_time)
    done: str = ""
    code: int | None = None

    @property
    def state(self) -> str:
        """Return the state in one word."""
        return "started" if self.code is None else "done"

    def __str__(self) -> str:
        if self.code is None:
            return f"started by {self.member} at {self.started} (token {self.token})"
        return f"done by {self.member} at {self.done} with code {self.code} (token {self.token})"


def minute_slot(seconds: float) -> str:
    """Return the slot of a wall-clock time: its minute, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(seconds))


def encode(slot: Slot) -> bytes:
    """Return the JSON of a slot, with its format number first."""
    fields = {"format": FORMAT, "state": slot.state, **attrs.asdict(slot)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def read(kv: KeyValue) -> Slot:
    """Return the slot of a key's value.

    Raises:
        StateError: the value cannot be read; the error names the key.
    """
    try:
        fields: dict[str, Any] = json.loads(kv.value)
        _check_format(fields["format"])
        return Slot(**{field.name: fields[field.name] for field in attrs.fields(Slot)})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        key = kv.key.decode(errors="backslashreplace")
        raise StateError(
            f"the slot under {key} cannot be read ({error!r}), so it is not known whether its job "
            "ran. Use a newer Rink, or delete the key, which lets the job run again",
            key=key,
        ) from error


def _check_format(number: object) -> None:
    if number != FORMAT:
        raise ValueError(f"format {number!r}, but this Rink reads format {FORMAT}")


@attrs.define
class SlotRun:
    """Write the run of one slot by one member.

    Args:
        record: the key of the member's record.
        session: the create revision of that record.
        mine: the slot that is written as `started`.
    """

    etcd: Etcd
    keys: SlotKeys
    name: str
    record: bytes
    session: int
    mine: Slot
    seen: int = 0

    def begin(self, *, retry_unfinished: bool) -> Slot | None:
        """Write `started`, or return the slot if another run has started it.

        The call may be repeated after an EtcdError.

        Raises:
            EtcdError: it is unknown whether `started` was written.
            RoleLost: the session of the grant has ended.
            StateError: the present value cannot be read.
        """
        while True:
            kv = self._write(self.mine)
            if kv is None:
                return None
            slot = read(kv)
            # Either an answer was lost, or this run was begun and its command was not started.
            if slot.run == self.mine.run:
                self.seen = kv.mod_revision
                continue
            if slot.code is not None or not retry_unfinished:
                return slot
            # The role is held here, so the earlier run is over: its member is dead or released it.
            self.seen = kv.mod_revision

    def finish(self, code: int) -> None:
        """Write `done`.

        Raises:
            EtcdError: it is unknown whether `done` was written.
            RoleLost: the session of the grant has ended, or another run has begun.
            StateError: the present value cannot be read.
        """
        done = attrs.evolve(self.mine, done=wall_time(), code=code)
        kv = self._write(done)
        if kv is None:
            return
        slot = read(kv)
        if slot.run != self.mine.run:
            raise RoleLost(f"slot {self.name!r} is no longer this member's: {slot}")
        if slot.code is None:
            self.seen = kv.mod_revision
            self.finish(code)

    def prune(self) -> int:
        """Delete the oldest slots beyond `MAX_KEPT_SLOTS`, and return the number."""
        kvs = self.etcd.range(self.keys.root, self.keys.end).kvs
        old = sorted(kvs, key=lambda kv: kv.create_revision)[:-MAX_KEPT_SLOTS][:MAX_DELETIONS]
        if old:
            mine = Compare(self.record, TxnTarget.CREATE, self.session)
            self.etcd.txn((mine,), tuple(Delete(kv.key) for kv in old))
        return len(old)

    def _write(self, slot: Slot) -> KeyValue | None:
        """Write a value if the key is as last seen, or return its present value.

        If the key was deleted meanwhile, it is written anew.
        """
        key = self.keys.slot(self.name)
        while True:
            result = self.etcd.txn(
                (
                    Compare(self.record, TxnTarget.CREATE, self.session),
                    Compare(key, TxnTarget.MOD, self.seen),
                ),
                (Put(key, encode(slot)),),
                (Get(self.record), Get(key)),
            )
            if result.succeeded:
                self.seen = result.header.revision
                return None
            record, present = result.results
            if not record or record[0].create_revision != self.session:
                raise RoleLost(
                    f"slot {self.name!r}: the session of {slot.member!r} under which its role was "
                    "granted has ended"
                )
            if present:
                return present[0]
            self.seen = 0


def look(etcd: Etcd, keys: SlotKeys, name: str) -> Slot | None:
    """Return the slot that etcd has under a name, or None."""
    kvs = etcd.range(keys.slot(name)).kvs
    return read(kvs[0]) if kvs else None
