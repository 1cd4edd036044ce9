"""Keep the labels of the own pod, on an event loop: what carries out `rink.sidecar.pod_label`.

No trouble of the API server reaches a role. A release waits `RELEASE_WAIT_S` at most, and a failure
costs one line of the log a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import Callable
from typing import Protocol

from rink.sidecar.clock import now_ms
from rink.sidecar.effects import Effect
from rink.sidecar.pod_api import PodApiError
from rink.sidecar.pod_label import NONE, PREFIX, GiveUp, LabelPlan, Roles, Send, wanted_labels
from rink.sidecar.turns import Turns

log = logging.getLogger("rink.sidecar")

RELEASE_WAIT_S = 2.0
"""Seconds that a release waits at most until its label is off, from when the label is to go."""
REPORT_INTERVAL_S = 60.0
"""Seconds between two lines that say why labels could not be changed."""


class Labels(Protocol):
    """Change the labels of the pod."""

    async def label(self, roles: Roles) -> None:
        """Put the labels of these roles on, and take the others of this sidecar off."""
        ...


class PodLabeller:
    """Keep a label on the own pod for each of some roles while a consumer holds it.

    Args:
        turns: who holds which role.
        labelled: the roles.
        labels: changes the labels of the pod.
        clock: returns the time in milliseconds.
        who: names the pod.
    """

    def __init__(
        self,
        turns: Turns,
        labelled: Roles,
        labels: Labels,
        clock: Callable[[], int] = now_ms,
        who: str = "",
    ) -> None:
        self._turns = turns
        self._labelled = labelled
        self._labels = labels
        self._clock = clock
        self._plan = LabelPlan(who)
        self._request: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        """Set when the plan has learnt something, and replaced by a new one."""
        self._is_closing = False
        self._reported_at_s = -math.inf
        self._is_reported = False

    def look(self, _: Effect | None = None) -> None:
        """Look again at what is held."""
        self._changed.set()

    def is_off(self, role: str) -> bool:
        """Return whether nothing has to be taken off before a release."""
        return role not in self._labelled or self._plan.is_off(role)

    async def wait_off(self, *roles: str) -> None:
        """Wait until labels are off, at most until they could be so for `RELEASE_WAIT_S`.

        A label goes at the loss. So a program that stops slowly has used up this wait. It does not
        wait for what the API server refuses.
        """
        self.look()
        now = self._clock()
        passed_ms = now - self._plan.wanted_since_ms(self._wanted(now)[0], now)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, RELEASE_WAIT_S - passed_ms / 1000)):
                while not all(self.is_off(role) for role in roles):
                    if self._plan.refused == self._wanted(self._clock())[0]:
                        return
                    await self._moved.wait()

    async def run(self) -> None:
        """Keep the labels until cancelled."""
        try:
            while True:
                self._changed.clear()
                await self._rest(self._step())
        finally:
            if self._request is not None:
                self._request.cancel()

    async def close(self) -> None:
        """Take all labels off, within `RELEASE_WAIT_S`."""
        self._is_closing = True
        await self.wait_off(*self._labelled)

    def _step(self) -> float:
        """Do what is due, and return when to look again if nothing changes."""
        if self._request is not None and self._request.done():
            self._note(self._request)
            self._request = None
        while True:
            now = self._clock()
            wanted, wanted_until_ms = self._wanted(now)
            match self._plan.step(wanted, now):
                case Send(roles):
                    self._plan.sent(roles, now)
                    self._request = asyncio.create_task(self._labels.label(roles))
                    self._request.add_done_callback(lambda _: self._changed.set())
                case GiveUp():
                    assert self._request is not None
                    self._request.cancel()
                    self._request = None
                    if self._plan.given_up(now):
                        self._report("the API server has not answered in time")
                    self._tell()
                case rest:
                    return min(rest.until_ms, wanted_until_ms)

    def _wanted(self, now: int) -> tuple[Roles, float]:
        if self._is_closing:
            return NONE, math.inf
        return wanted_labels(self._turns, self._labelled, now)

    def _note(self, request: asyncio.Task[None]) -> None:
        """Note what came of a request."""
        before = self._plan.known or NONE
        error = request.exception()
        if error is None:
            self._plan.answered()
            if self._is_reported:
                log.info("the labels of the pod can be changed again")
                self._is_reported = False
            for role in sorted((self._plan.known or NONE) ^ before):
                is_on = role in (self._plan.known or NONE)
                log.info("label %s: %s the pod", PREFIX + role, "put on" if is_on else "taken off")
        elif isinstance(error, PodApiError):
            self._plan.failed(
                self._clock(),
                may_take_effect=error.may_take_effect,
                is_refused=error.is_refused,
            )
            self._report(str(error))
        else:
            self._plan.failed(self._clock(), may_take_effect=True)
            self._report(f"{type(error).__name__}: {json.dumps(str(error))}")
        self._tell()

    def _report(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._reported_at_s + REPORT_INTERVAL_S:
            self._reported_at_s, self._is_reported = now, True
            log.warning("the labels of the pod cannot be changed, trying again: %s", why)

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _rest(self, until_ms: float) -> None:
        seconds = None if until_ms == math.inf else max(0.0, (until_ms - self._clock()) / 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
