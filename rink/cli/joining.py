"""Define the options of commands that join a group."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
    help="Seconds after which another host may take over if this one is dead or cut off.",
)


def with_name(groups: str = "the group") -> Callable[..., Any]:
    """Return a decorator that gives a command the option `--name`.

    Args:
        groups: the groups in which the name is unique, in words.
    """
    return click.option(
        "--name",
        envvar="RINK_NAME",
        callback=name_check("member"),
        help=f"Its name in {groups}.  [default: host name, process id, four hex digits]",
    )


def with_log_level(note: str = "") -> Callable[..., Any]:
    """Return a decorator that gives a command the option `--log-level`.

    Args:
        note: a sentence to add to the option's help.
    """
    return click.option(
        "--log-level",
        metavar="LEVEL",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        help=f"What is logged to stderr: {', '.join(LEVELS)}.{note and f' {note}'}",
    )


def log_to_stderr(level: str, handler: logging.Handler | None = None) -> None:
    """Set up logging, unless the program has already done so.

    Args:
        level: the lowest level that is logged.
        handler: takes the lines, and writes them to stderr.
    """
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        handlers=[handler or logging.StreamHandler()],
    )


def with_leave(successor: str) -> Callable[..., Any]:
    """Return a decorator that gives a command the options of its leave.

    The command gets `handover_wait` in seconds with its default, and `termination_grace`.

    Args:
        successor: words for the help: what the leave waits for, and what goes on meanwhile.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_default(*args: Any, handover_wait: float | None, **more: Any) -> Any:
            if handover_wait is None:
                handover_wait = kubernetes.default_handover_wait()
            return function(*args, handover_wait=handover_wait, **more)

        for option in (_TERMINATION_GRACE, _handover_wait(successor)):
            with_default = option(with_default)
        return with_default

    return decorate


def _handover_wait(successor: str) -> Callable[..., Any]:
    return click.option(
        "--handover-wait",
        metavar="SECONDS",
        type=Seconds(min=0),
        envvar="RINK_HANDOVER_WAIT",
        help=(
            f"How long leaving waits for {successor}.  "
            f"[default: {kubernetes.HANDOVER_WAIT_S:g} in Kubernetes, else 0]"
        ),
    )


_TERMINATION_GRACE = click.option(
    "--termination-grace",
    metavar="SECONDS",
    type=Seconds(min=0),
    envvar="RINK_TERMINATION_GRACE",
    help="The pod's terminationGracePeriodSeconds. Leaving must be over before.",
)


def session_at(target: Target, ttl: float) -> aio.Session:
    """Return a session with the etcd that a command's options name."""
    from rink import aio

    return aio.Session(
        target.endpoints,
        ttl=ttl,
        prefix=target.prefix,
        user=target.user,
        password=target.password,
        ca=target.ca,
        cert=target.cert,
        key=target.key,
        timeout=target.timeout,
    )
