"""Hold the user's settings of one member."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import attrs

from rink.core.ranks import RankSettings
from rink.errors import ConfigError


def _seconds(_: Any, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None and not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{attribute.name} is a number of seconds, 0 or more, not {value}")


def _ranking(_: Any, __: attrs.Attribute[Any], value: RankSettings) -> None:
    for field in attrs.fields(RankSettings):
        if field.name != "stagger":
            _seconds(value, field, getattr(value, field.name))
    if value.stagger is not None and value.stagger < 1:
        raise ConfigError(f"stagger is a number of ranks, 1 or more, not {value.stagger}")


@attrs.frozen
class MemberSettings:
    """Hold the user's settings of one member; durations are in seconds.

    They are written as JSON and added to clocks, so none may be infinite.
    """

    name: str
    ttl: int
    margin: float | None = None
    ranking: RankSettings = attrs.field(factory=RankSettings, validator=_ranking)
    grace: float | None = attrs.field(default=None, validator=_seconds)
    join_timeout: float | None = attrs.field(default=None, validator=_seconds)
    leave_timeout: float = attrs.field(default=10.0, validator=_seconds)
    schemes: tuple[str, ...] = ("jump",)
    labels: dict[str, str] = attrs.field(factory=dict)
    address: str = ""
    joined: str = ""
    draining_limit_bytes: int = 65_536

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """Return the fields of the record that are settings."""
        leads_by = attrs.asdict(self.ranking)  # they count only while this member coordinates
        return {
            "rebalance_delay": leads_by.pop("rebalance_delay"),  # counts while this member waits
            "schemes": self.schemes,
            "address": self.address,
            "labels": self.labels,
            "joined": self.joined,
            "leads_by": leads_by,
        }
