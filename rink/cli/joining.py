"""Define the options of commands that join a group."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import click

from rink.cli import kubernetes
from rink.cli.options import Seconds, Target, name_check

if TYPE_CHECKING:
    from rink import aio

TTL_S = 20.0

LEVELS = ("debug", "info", "warning", "error", "critical")

with_ttl = click.option(
    "--ttl",
    metavar="SECONDS",
    type=Seconds(min=2),
    default=TTL_S,
    help="Seconds after which another host may take over if this host is dead or cut off.",
)


def with_name(groups: str = "the group") -> Callable[..., Any]:
    """Return a decorator that gives a command the option `--name`."""
    return click.option(
        "--name",
        envvar="RINK_NAME",
        callback=name_check("member"),
        help=f"The member's name in {groups}.  [default: host name, process id, four hex digits]",
    )


def with_log_level(note: str = "") -> Callable[..., Any]:
    """Return a decorator that gives a command the option `--log-level`."""
    return click.option(
        "--log-level",
        metavar="LEVEL",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        help=f"What is logged to stderr: {', '.join(LEVELS)}.{note and f' {note}'}",
    )


def log_to_stderr(level: str, handler: logging.Handler | None = None) -> None:
    """Set up logging, unless the program has already done so."""
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        handlers=[handler or logging.StreamHandler()],
    )


def with_leave(successor: str) -> Callable[..., Any]:
    """Return a decorator that gives a command the options of its leave.

    Args:
        successor: words for the help: what the leave waits for, and what continues meanwhile.
    """
    handover_wait = click.option(
        "--handover-wait",
        metavar="SECONDS",
        type=Seconds(min=0),
        envvar="RINK_HANDOVER_WAIT",
        callback=_default_handover_wait,
        help=(
            f"How long leaving waits for {successor}.  "
            f"[default: {kubernetes.HANDOVER_WAIT_S:g} in Kubernetes, else 0]"
        ),
    )
    return lambda function: handover_wait(_TERMINATION_GRACE(function))


def _default_handover_wait(_: click.Context, __: click.Parameter, value: float | None) -> float:
    return kubernetes.default_handover_wait() if value is None else value


_TERMINATION_GRACE = click.option(
    "--termination-grace",
    metavar="SECONDS",
    type=Seconds(min=0),
    envvar="RINK_TERMINATION_GRACE",
    help="The pod's terminationGracePeriodSeconds. The leave must end within this time.",
)


def session_at(target: Target, ttl: float) -> aio.Session:
    """Return a session with the etcd that a command's options name."""
    from rink import aio

    return aio.Session(ttl=ttl, **attrs.asdict(target))
