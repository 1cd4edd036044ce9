"""Join the group while there is a consumer, and leave it otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rink import _member_internals, aio
from rink.core.retry_delay import backoff
from rink.errors import ClosedError, RinkError, RoleLost
from rink.sidecar.clock import in_ms
from rink.sidecar.service import LEAVES, Service

if TYPE_CHECKING:
    from rink.sidecar.pod_labeller import PodLabeller

log = logging.getLogger("rink.sidecar")

RETRY_REPORT_INTERVAL_S = 60.0
"""Seconds between two log lines about failures to join."""


class MembershipState(enum.Enum):
    """Name the states of the member."""

    ABSENT = "absent: there is no consumer"
    JOINING = "joining"
    JOINED = "joined"
    LEAVING = "leaving"
    LEFT = "left"


class Membership:
    """Join and leave a group as consumers come and go.

    **Drain is final.** A draining sidecar takes no new consumer, and does not join again. Otherwise
    a program that runs until its pod ends could get back the roles that were handed over.

    `_handles` keeps the handles of roles, and only `let_go` releases them. So neither the end of a
    task nor an error releases a role before the told end of its consumer.

    Args:
        make: returns a member of the group that has not joined yet.
        absent_s: seconds without a sign of life of any consumer until the member leaves.
        stays: True if the member joins at once, and stays without a consumer.
    """

    def __init__(
        self, service: Service, make: Callable[[], aio.Rink], absent_s: float, stays: bool = False
    ) -> None:
        self.service = service
        self.state = MembershipState.ABSENT
        self.trouble = ""
        """The reason why the last try to join the group failed, or ""."""
        self.rink: aio.Rink | None = None
        self.presence = asyncio.Event()
        """Set when consumers may have come or gone."""
        self.left = asyncio.Event()
        """Set when the member has left for good."""
        self.failed = asyncio.Event()
        self.labeller: PodLabeller | None = None
        """The labeller, which takes labels off the own pod before their roles are released."""
        self.failure: BaseException | None = None
        """A fault of this program, after which turns are no longer kept."""
        self._make = make
        self._absent_s = absent_s
        self._stays = stays
        self._drain = asyncio.Event()
        self._now = asyncio.Event()
        self._waits: dict[str, asyncio.Task[None]] = {}
        self._handles: dict[str, aio.Role] = {}
        self._releases: set[asyncio.Task[None]] = set()
        self._last_token = 0
        service.member = self

    @property
    def has_consumers(self) -> bool:
        """Return whether the member must be in the group."""
        return self._stays or bool(self.service.turns.consumers)

    @property
    def absence_left_s(self) -> float:
        """Return the seconds left to stay in the group without a consumer.

        They count from the last sign of life of any consumer. A killed consumer is forgotten only
        after its ends have passed, and meanwhile its roles are not served.
        """
        passed_s = (self.service.clock() - self.service.heard_ms) / 1000
        return max(0.0, self._absent_s - passed_s)

    # ── the service's member (rink.sidecar.service.ServiceMember) ────────────────────────────────

    def session(self) -> tuple[int, int]:
        """Return the live lease and its deadline in ms, or 0 and 0."""
        if self.rink is None:
            return 0, 0
        lease, deadline = _member_internals.lease_and_deadline(self.rink)
        return lease, in_ms(deadline)

    def want(self, role: str) -> None:
        """Wait for a role, with a token above every earlier token."""
        self.unwant(role)
        if self.rink is not None:  # also during a leave, which serves until a successor takes over
            self._waits[role] = task = asyncio.create_task(self._serve(self.rink, role))
            task.add_done_callback(self._check)

    def unwant(self, role: str) -> None:
        """End the wait for a role."""
        if task := self._waits.pop(role, None):
            task.cancel()

    def _check(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.fail(failure)

    def fail(self, failure: BaseException) -> None:
        """Note a fault of this program. The first fault ends it."""
        self.failure = self.failure or failure
        self.failed.set()

    def let_go(self, role: str) -> None:
        """Release a role, as soon as its label is off the pod.

        Meanwhile another consumer of this sidecar may wait for the role. That wait has another
        handle.
        """
        handle = self._handles.pop(role, None)
        if handle is None:
            return
        if self.service.draining and handle.is_held and not self.service.turns.is_wanted(role):
            self._stop_waiting_for_successor(role)
        if self.labeller is not None and not self.labeller.is_off(role):
            task = asyncio.create_task(self._release_without_label(handle, role, self.labeller))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)
            task.add_done_callback(self._check)
        else:
            handle.release()

    def _stop_waiting_for_successor(self, role: str) -> None:
        """Leave now, so that another member serves a role without a consumer.

        A draining sidecar takes no new consumer, so the role would not be served until a successor
        comes. Without another member, an earlier leave would help no role, and end the other roles.
        """
        if (
            self._now.is_set()
            or self.rink is None
            or not _member_internals.has_other_members(self.rink)
        ):
            return
        text = "role %s: no consumer here has it, so the leave waits for no successor"
        log.info(text, json.dumps(role))
        self._now.set()

    @staticmethod
    async def _release_without_label(handle: aio.Role, role: str, labeller: PodLabeller) -> None:
        try:
            await labeller.wait_off(role)
        finally:
            handle.release()

    def obstacle(self, role: str) -> str:
        """Return the owner of a role, or why this member does not hold it."""
        rink = self.rink
        if rink is None:
            is_about_to = self.state is MembershipState.ABSENT and self.has_consumers
            doing = MembershipState.JOINING.value if is_about_to else self.state.value
            return f"this sidecar is {doing}" + (self.trouble and f": {self.trouble}")
        return _member_internals.obstacle_of(rink, role)

    async def _serve(self, rink: aio.Rink, role: str) -> None:
        """Wait for a role, and report it and its loss to a consumer."""
        me = asyncio.current_task()
        failures = 0
        while True:
            try:
                handle = await rink.await_role(role, token_above=self._last_token)
                break
            except ClosedError:
                return  # the next member, if any, waits for the role again
            except Exception as error:  # for example, a scheme that fails
                failures += 1
                why = json.dumps(str(error))  # it contains names of other members and roles
                log.error("cannot wait for role %s, retrying: %s", json.dumps(role), why)
                await asyncio.sleep(backoff(failures, role))
        if self._waits.get(role) is not me:
            handle.release()
            return
        del self._waits[role]
        self._handles[role] = handle
        self._last_token = max(self._last_token, handle.token)
        turn = self.service.granted(role, handle.token, lambda: handle.is_held)
        if turn is None:
            return
        await handle.lost.wait()
        if not turn.is_over:
            try:
                handle.raise_if_lost()
            except RoleLost as error:
                self.service.lost(turn, str(error))

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def drain(self, why: str) -> None:
        """Begin to leave for good. A second call does nothing."""
        if not self.service.draining:
            log.info("draining: %s", json.dumps(why))
            self.service.draining = why
            self._drain.set()
            self.presence.set()

    def hurry(self) -> None:
        """Begin to leave for good, and wait for no successor."""
        self.drain("told to leave now")
        self._now.set()

    async def run(self) -> None:
        """Join and leave until drained."""
        while not self._drain.is_set():
            if not self.has_consumers:
                self.presence.clear()
                await self.presence.wait()
                continue
            if await self._join():
                await self._stay()
                await self._leave()
        self.state = MembershipState.LEFT
        self.service.say_bye(LEAVES)
        self.left.set()

    async def _join(self) -> bool:
        """Join, with retries while there is a consumer."""
        self.state = MembershipState.JOINING
        failures, reported_at = 0, -RETRY_REPORT_INTERVAL_S
        while self.has_consumers and not self._drain.is_set():
            rink = self._make()
            joining = asyncio.create_task(rink.join())
            await self._first(joining, self._drain)
            if not joining.done():
                joining.cancel()
                await asyncio.gather(joining, return_exceptions=True)
                break
            error = joining.exception()
            if error is None:
                self.rink, self.state, self.trouble = rink, MembershipState.JOINED, ""
                # While this member was out of the group, etcd may have been restored from a backup,
                # and tokens may be lower. The other members of the group may not have noticed.
                _member_internals.raise_tokens(rink, self._last_token)
                for role in self.service.turns.wanted:
                    self.want(role)
                return True
            if not isinstance(error, RinkError):
                raise error
            failures, self.trouble = failures + 1, str(error)
            now = asyncio.get_running_loop().time()
            if now >= reported_at + RETRY_REPORT_INTERVAL_S:
                reported_at = now
                group, why = json.dumps(rink.group), json.dumps(self.trouble)
                log.warning("cannot join group %s, retrying: %s", group, why)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drain.wait(), backoff(failures, rink.name))
        self.state, self.trouble = MembershipState.ABSENT, ""
        return False

    async def _stay(self) -> None:
        """Stay in the group while there is a consumer, and `absent_s` longer."""
        assert self.rink is not None
        ended = asyncio.create_task(self._ended(self.rink))
        try:
            while not self._drain.is_set() and not ended.done():
                self.presence.clear()
                if self.has_consumers:
                    await self._first(ended, self.presence)
                    continue
                await self._first(ended, self.presence, self.absence_left_s)
                if not (ended.done() or self.presence.is_set() or self.has_consumers):
                    log.info("no consumer for %g s: the member leaves", self._absent_s)
                    return
        finally:
            ended.cancel()

    async def _leave(self) -> None:
        assert self.rink is not None
        self.state = MembershipState.LEAVING
        leaving = asyncio.create_task(self.rink.leave(wait=True, now=self._now.is_set()))
        await self._first(leaving, self._now)
        if not leaving.done():
            await self.rink.leave(wait=True, now=True)
        await leaving
        for task in list(self._waits.values()):
            task.cancel()
        self._waits.clear()
        self.rink, self.state = None, MembershipState.ABSENT

    @staticmethod
    async def _ended(rink: aio.Rink) -> None:
        """Wait until the member has left by itself, because its engine failed."""
        async for _ in rink.versions():
            pass

    @staticmethod
    async def _first(
        task: asyncio.Task[Any], event: asyncio.Event, timeout_s: float | None = None
    ) -> None:
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait(
                {task, waiting}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
