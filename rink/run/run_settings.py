"""Hold the settings of `rink run`."""

from __future__ import annotations

import attrs

from rink.errors import ConfigError

LEAVE_TIMEOUT_S = 10.0


@attrs.frozen(kw_only=True)
class RunSettings:
    """Hold the options of `rink run`. Durations are in seconds."""

    group: str
    role: str
    command: tuple[str, ...]
    name: str | None = None
    grace: float = 10.0
    wait: float | None = None
    once: bool = False
    restart: bool = False
    handover_wait: float = 0.0
    slot: str | None = None
    retry_if_unfinished: bool = False

    def __attrs_post_init__(self) -> None:
        """Raise ConfigError if options exclude each other."""
        if self.once and self.restart:
            raise ConfigError("--once and --restart exclude each other: give one of them")
        if self.slot is not None and self.restart:
            raise ConfigError("--once-per and --restart exclude each other: a slot runs once")
        if self.retry_if_unfinished and self.slot is None:
            raise ConfigError(
                "--retry-if-unfinished needs --once-per: it retries the run of a slot"
            )

    @property
    def what(self) -> str:
        """Return the role and its group, for messages."""
        return f"role {self.role!r} of group {self.group!r}"

    @property
    def leaves_within_s(self) -> float:
        """Return the sum of all waits of a leave, in seconds."""
        return self.handover_wait + 2 * LEAVE_TIMEOUT_S + self.grace
