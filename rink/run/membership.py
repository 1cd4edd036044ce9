"""Join the group for `rink run`, wait there for the role, and leave.

The group stays at one rank, and the member with this rank has the role. So a planned handover is
immediate, and an unplanned handover takes no longer than the lease. All members of the group must
therefore run the same role. Each member names its role in a label of its record. If the owner runs
another role, a member would wait forever. So it fails, unless the owner is leaving.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from rink import _member_internals, aio
from rink.backoff import Backoff
from rink.errors import ConfigError, EtcdAuth, EtcdError, EtcdTls, RoleTimeout
from rink.run.run_settings import LEAVE_TIMEOUT_S, RunSettings

log = logging.getLogger("rink.run")

ROLE_LABEL = "rink-run.role"
"""Label of a member's record that names the role which the member runs."""

GROWTH_DELAY_S = 365 * 86_400.0
"""A delay so long that the group never grows.

Standbys wait for the only rank. As soon as the holder leaves or its lease ends, the standby that
has waited longest gets it.
"""

QUICK_LEAVE_TIMEOUT_S = 0.1
"""Time to leave the group after a signal while no command runs. After that, the lease must end."""

FIRST_JOIN_PAUSE_S, MAX_JOIN_PAUSE_S = 1.0, 30.0
"""Bounds of the first pause and of every pause before the next try to join."""

REPORT_INTERVAL_S = 60.0
"""Seconds between two log lines about the same wait."""

LOOK_INTERVAL_S = 1.0
"""Seconds between two checks of a waiting member: the owner's role, and the slot."""


class RunMember:
    """Join the group as one `rink run`, wait for the role, and leave."""

    def __init__(self, settings: RunSettings, session: aio.Session) -> None:
        self._why = "etcd has not answered yet: check --endpoints or RINK_ETCD"
        self._joining: aio.Rink | None = None
        self._settings = settings
        self._session = session
        self._joined: aio.Rink | None = None

    @property
    def is_joined(self) -> bool:
        """Return whether the group was joined."""
        return self._joined is not None

    @property
    def why(self) -> str:
        """Return the reason why the member waits."""
        if self._joined is not None or self._joining is None:
            return self._why
        owner = _member_internals.owner_of_name(self._joining)
        has = f"{owner} has the name {self._settings.name!r}"
        return f"{has}: end that process, or give another --name" if owner else self._why

    @property
    def rink(self) -> aio.Rink:
        """Return the member, which must have joined."""
        assert self._joined is not None
        return self._joined

    def lease_and_end(self) -> tuple[int, int]:
        """Return the live lease and its deadline in ms, or 0 and 0."""
        lease, deadline = (
            _member_internals.lease_and_deadline(self.rink) if self.is_joined else (0, 0.0)
        )
        return lease, math.floor(deadline * 1000)

    async def join(self) -> None:
        """Join the group once; retry while etcd does not answer."""
        pauses, reported_at = Backoff(FIRST_JOIN_PAUSE_S, MAX_JOIN_PAUSE_S), -math.inf
        while self._joined is None:
            try:
                self._joining = self._make()
                self._joined = await self._joining.join()
            except (EtcdAuth, EtcdTls):
                raise
            except EtcdError as error:
                self._why = str(error)
                now = asyncio.get_running_loop().time()
                if now - reported_at >= REPORT_INTERVAL_S:
                    reported_at, group = now, self._settings.group
                    log.warning("`rink run` waits to join group %r: %s", group, error)
                await asyncio.sleep(pauses.next())

    def _make(self) -> aio.Rink:
        settings = self._settings
        return aio.Rink(
            self._session,
            settings.group,
            name=settings.name,
            scheme=("first", "jump"),
            rebalance_delay=GROWTH_DELAY_S,
            initial_delay=GROWTH_DELAY_S,
            leave_timeout=LEAVE_TIMEOUT_S,
            handover_wait=settings.handover_wait,
            labels={ROLE_LABEL: settings.role},
        )

    async def await_role(
        self, token_above: int, is_over: Callable[[], Awaitable[bool]]
    ) -> aio.Role | None:
        """Wait for the role, and log the reason of the wait.

        Args:
            token_above: a number below the role's token.
            is_over: returns whether the role is no longer needed. If so, this returns None.

        Raises:
            ConfigError: the owner runs another role and stays, so the wait would never end.
        """
        loop = asyncio.get_running_loop()
        report_at = loop.time() + REPORT_INTERVAL_S
        self._why = self._obstacle()
        name, what = self.rink.name, self._settings.what
        log.info("member %r waits for %s: %s", name, what, self.why)
        while True:
            try:
                return await self.rink.await_role(
                    self._settings.role, LOOK_INTERVAL_S, token_above=token_above
                )
            except RoleTimeout:
                self._why = self._obstacle()
            if await is_over():
                return None
            if loop.time() >= report_at:
                report_at = loop.time() + REPORT_INTERVAL_S
                log.info("member %r still waits for %s: %s", name, what, self.why)

    def _obstacle(self) -> str:
        """Return the reason why this member does not have the role.

        Raises:
            ConfigError: the owner runs another role, and stays.
        """
        role, group = self._settings.role, self._settings.group
        owner = self.rink.owner(role)
        if owner is None:
            return "nobody has a rank yet"
        if owner == self.rink.name:
            return _member_internals.obstacle_of(self.rink, role)
        stays = (
            member for member in self.rink.members if member.name == owner and not member.leaving
        )
        runs = next((member.labels.get(ROLE_LABEL) for member in stays), None)
        if runs not in {None, role}:
            raise ConfigError(
                f"member {owner!r} of group {group!r} runs role {runs!r}, so role {role!r} would "
                "never start: give each role a group of its own by --group"
            )
        return f"member {owner!r} owns it until it leaves, or its lease ends"

    async def leave(self, hurried: asyncio.Event) -> None:
        """Leave the group, until `hurried` cuts the leave short.

        The caller holds no role any more.
        """
        if self._joined is None:
            return
        leave = asyncio.ensure_future(self._joined.leave(now=True))
        hurry = asyncio.ensure_future(hurried.wait())
        await asyncio.wait({leave, hurry}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({leave}, timeout=QUICK_LEAVE_TIMEOUT_S)
        hurry.cancel()
        group = self._settings.group
        if not leave.done():
            leave.cancel()
            log.warning(
                "left group %r without an answer of etcd: the lease ends within the TTL", group
            )
        elif (error := leave.exception()) is not None:
            log.error("cannot leave group %r, so the lease ends within the TTL: %s", group, error)
        else:
            log.info("left group %r", group)
