"""Keep the labels of the own pod by the plan of `rink.sidecar.pod_label`.

Failures of the API server never affect a role. A release waits at most `RELEASE_WAIT_S`. Failures
log at most one warning a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import Callable

from rink.sidecar.clock import now_ms
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.effects import SidecarEffect
from rink.sidecar.pod_api import PodApi, PodApiError
from rink.sidecar.pod_label import (
    NONE,
    PREFIX,
    RELEASE_WAIT_S,
    GiveUp,
    LabelPlan,
    Roles,
    Send,
    wanted_labels,
)

log = logging.getLogger("rink.sidecar")

REPORT_INTERVAL_S = 60.0
"""Seconds between two log lines about failures to change labels."""


class PodLabeller:
    """Keep a label on the own pod for each role while a consumer holds it.

    `labelled` has the roles of `--label-pod`.
    """

    def __init__(
        self,
        turns: ConsumerTurns,
        labelled: Roles,
        labels: PodApi,
        clock: Callable[[], int] = now_ms,
        pod: str = "",
    ) -> None:
        self._turns = turns
        self._labelled = labelled
        self._labels = labels
        self._clock = clock
        self._plan = LabelPlan(pod)
        self._request: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._moved = asyncio.Event()
        """Set when a request has ended, and then replaced by a new event."""
        self._is_closing = False
        self._reported_at_s = -math.inf
        self._is_reported = False

    def look(self, _: SidecarEffect | None = None) -> None:
        """Recompute the labels from the roles that are held."""
        self._changed.set()

    def is_off(self, role: str) -> bool:
        """Return whether a release of the role need not wait for its label."""
        return role not in self._labelled or self._plan.is_off(role)

    async def wait_off(self, *roles: str) -> None:
        """Wait until the labels of these roles are off, in bounded time.

        `RELEASE_WAIT_S` counts from the last change of the wanted labels. A label is removed at the
        loss, so for a program that stops slowly this time is already over. The wait also ends if
        the API server would refuse the request again.
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
        """Do the next steps of the plan, and return the time of the next step."""
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
                self._clock(), may_take_effect=error.may_take_effect, is_refused=error.is_refused
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
            log.warning("cannot change the labels of the pod, retrying: %s", why)

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _rest(self, until_ms: float) -> None:
        seconds = None if until_ms == math.inf else max(0.0, (until_ms - self._clock()) / 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
