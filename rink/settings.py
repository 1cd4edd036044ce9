"""Check the settings of a session and of a member."""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Mapping, Sequence

from rink.arguments import check_seconds
from rink.core import schemes
from rink.core.codec import MAX_TTL_S
from rink.core.keys import check_name
from rink.core.lease import default_margin
from rink.core.member import MemberSettings
from rink.core.ranks import RankSettings
from rink.errors import ConfigError
from rink.etcd.setting_names import setting

MIN_TTL_S = 2
MAX_LABELS_BYTES = 16_384


def check_ttl(ttl: float, margin: float | None) -> tuple[int, float]:
    """Return the TTL, rounded up, and the margin, or raise a ConfigError.

    Both are in seconds.
    """
    ttl = check_seconds("ttl", ttl)
    if ttl < MIN_TTL_S:
        raise ConfigError(f"ttl={ttl:g} s is too short: etcd grants no lease below 2 s")
    if ttl > MAX_TTL_S:
        raise ConfigError(f"ttl={ttl:g} s is too long: etcd grants no lease above {MAX_TTL_S} s")
    whole = math.ceil(ttl)
    if margin is None:
        return whole, default_margin(whole)
    margin = check_seconds("margin", margin)
    if margin > whole / 2:
        raise ConfigError(
            f"margin={margin:g} s is more than half of ttl={whole} s: roles would be "
            "lost between two renewals"
        )
    return whole, margin


def check_endpoints(endpoints: object) -> list[str]:
    """Return a list of endpoints; the default is `RINK_ETCD`, or local etcd."""
    if endpoints is None:
        endpoints = os.environ.get("RINK_ETCD") or "http://127.0.0.1:2379"
    if isinstance(endpoints, str):
        endpoints = [part.strip() for part in endpoints.split(",") if part.strip()]
    if not isinstance(endpoints, Sequence) or not all(isinstance(part, str) for part in endpoints):
        raise ConfigError(
            f"{setting('endpoints')} must be a str or a list of str, not {endpoints!r}"
        )
    if not endpoints:
        name = setting("endpoints")
        raise ConfigError(f"{name} is empty: name at least one, such as http://127.0.0.1:2379")
    return list(endpoints)


def check_prefix(prefix: object) -> str:
    """Return the prefix of every key, or raise a ConfigError."""
    if not isinstance(prefix, str) or not prefix.endswith("/"):
        name = setting("prefix")
        raise ConfigError(f"{name} must end with '/', such as 'rink/': {prefix!r}")
    try:
        prefix.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"{setting('prefix')} {prefix!r} is not valid unicode: {error}"
        ) from error
    return prefix


def default_name() -> str:
    """Return a unique member name: host name, pid and four hex digits."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"


def member_settings(
    *,
    name: str | None,
    ttl: int,
    margin: float | None,
    rebalance_delay: float,
    initial_delay: float,
    leave_delay: float,
    grace: float | None,
    scheme: str | Sequence[str],
    stagger: int | None,
    join_timeout: float | None,
    leave_timeout: float,
    handover_wait: float,
    labels: Mapping[str, str] | None,
    joined: str,
) -> MemberSettings:
    """Check a member's settings and return them as the core takes them."""
    if stagger is not None and (isinstance(stagger, bool) or not isinstance(stagger, int)):
        raise ConfigError(f"stagger must be a whole number of ranks, not {stagger!r}")
    if stagger is not None and stagger < 1:
        raise ConfigError(f"stagger={stagger} would let no rank ever move; give 1 or more, or None")
    return MemberSettings(
        name=default_name() if name is None else check_name("member", name),
        ttl=ttl,
        margin=margin,
        ranking=RankSettings(
            rebalance_delay=check_seconds("rebalance_delay", rebalance_delay),
            initial_delay=check_seconds("initial_delay", initial_delay),
            leave_delay=check_seconds("leave_delay", leave_delay),
            handover_wait=check_seconds("handover_wait", handover_wait),
            stagger=stagger,
        ),
        grace=None if grace is None else check_seconds("grace", grace),
        join_timeout=None if join_timeout is None else check_seconds("join_timeout", join_timeout),
        leave_timeout=check_seconds("leave_timeout", leave_timeout),
        schemes=_check_schemes(scheme),
        labels=_check_labels(labels),
        address=socket.gethostname(),
        joined=joined,
    )


def _check_schemes(scheme: object) -> tuple[str, ...]:
    """Return the schemes that the member lists, best first."""
    names = [scheme] if isinstance(scheme, str) else scheme
    if not isinstance(names, Sequence) or not names:
        raise ConfigError(f"scheme must be a str or a list of str, best first, not {scheme!r}")
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"scheme must be a str, not {name!r}")
        schemes.find(name)
    return tuple(dict.fromkeys(names))


def _check_labels(labels: object) -> dict[str, str]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not all(
        isinstance(text, str) for pair in labels.items() for text in pair
    ):
        raise ConfigError(f"labels must map str to str: {labels!r}")
    try:
        size = sum(len(text.encode()) for pair in labels.items() for text in pair)
    except UnicodeEncodeError as error:
        raise ConfigError(f"labels are not valid unicode: {error}") from error
    if size > MAX_LABELS_BYTES:
        raise ConfigError(
            f"labels take {size} bytes; the limit is {MAX_LABELS_BYTES}, since every "
            "member reads every record"
        )
    return dict(labels)
