"""Begin and finish the slot of `--once-per`.

The transactions of `slots` run on a thread, and are repeated while the role is held.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from rink import aio
from rink.core.keys import Keys, SlotKeys
from rink.errors import EtcdError, RinkError
from rink.etcd.api import Etcd
from rink.run.run_settings import RunSettings
from rink.run.slots import Slot, SlotRun, look, new_run

log = logging.getLogger("rink.run")

T = TypeVar("T")


class SlotDuty:
    """Begin and finish the slot of one `rink run`."""

    def __init__(self, etcd: Etcd, prefix: str, settings: RunSettings) -> None:
        assert settings.slot is not None
        self.name = settings.slot
        self._etcd = etcd
        self._group = Keys.of(prefix, settings.group)
        self._keys = SlotKeys.of(prefix, settings.group, settings.role)
        self._retry = settings.retry_if_unfinished
        self._run = new_run()  # of the next start
        self._role = settings.what

    async def is_over(self) -> bool:
        """Return whether the slot needs no run, by a read of etcd."""
        try:
            slot = await asyncio.to_thread(look, self._etcd, self._keys, self.name)
        except EtcdError as error:
            log.debug("cannot read slot %r: %s", self.name, error)
            return False  # the holder of the role reads it again
        if slot is None or (slot.code is None and (self._retry or slot.run == self._run)):
            return False
        self._report_slot(slot)
        return True

    async def begin(self, role: aio.Role, member: str, session: int) -> SlotRun | None:
        """Write `started`, or return None if another run started the slot.

        The role may be lost before the command starts. Then the slot still belongs to this member,
        which begins it again under the same run, unless another member has taken the slot over.
        """
        mine = Slot(token=role.token, member=member, run=self._run)
        record = self._group.member(member)
        run = SlotRun(self._etcd, self._keys, self.name, record, session, mine)
        slot = await self._while_held(role, lambda: run.begin(retry_unfinished=self._retry))
        if slot is not None:
            self._report_slot(slot)
            return None
        log.info("slot %r of %s is started", self.name, self._role)
        return run

    def started(self) -> None:
        """Note that the command may have run, so that this run never begins again."""
        self._run = new_run()

    async def finish(self, role: aio.Role, run: SlotRun, code: int) -> None:
        """Write `done`, and delete old slots."""
        try:
            await self._while_held(role, lambda: run.finish(code))
        except RinkError as error:
            log.error(
                "slot %r has ended with code %d, but its end was not written to etcd: %s. With "
                "--retry-if-unfinished the slot is run again",
                run.name,
                code,
                error,
            )
            return
        try:
            await asyncio.to_thread(run.prune)
        except EtcdError as error:  # the next run deletes them
            log.info("cannot delete old slots of %s: %s", self._role, error)

    async def _while_held(self, role: aio.Role, call: Callable[[], T]) -> T:
        """Call a function on a thread, and repeat it after each EtcdError.

        The calls end when the role is lost.

        Raises:
            RoleLost: the role is lost.
        """
        while True:
            role.raise_if_lost()
            try:
                return await asyncio.to_thread(call)
            except EtcdError as error:
                log.warning("slot %r waits for an answer of etcd: %s", self.name, error)
                await asyncio.sleep(0.5)

    def _report_slot(self, slot: Slot) -> None:
        if slot.code is None:
            log.warning("slot %r of %s is not run: it was %s", self.name, self._role, slot)
        else:
            log.info("slot %r of %s is not run: it is %s", self.name, self._role, slot)
