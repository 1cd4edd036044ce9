"""Hold roles for the programs in the same pod: `rink sidecar`."""

from __future__ import annotations

import asyncio
import gc
import logging
from functools import partial
from pathlib import Path
from typing import Any

import click

from rink.cli import kubernetes
from rink.cli.apps import NeedsExtra
from rink.cli.exit_status import Wrong
from rink.cli.joining import (
    log_to_stderr,
    session_at,
    with_leave,
    with_log_level,
    with_name,
    with_ttl,
)
from rink.cli.options import Seconds, Target, check_group, check_role, with_target
from rink.errors import ConfigError
from rink.pip_distribution import install_command

API = "127.0.0.1:8181"
PUBLIC = "0.0.0.0:8182"
LEAVE_TIMEOUT_S = 10.0
GC_THRESHOLDS = (700, 5, 2)
"""Thresholds for a full collection after 7,000 new objects, not 70,000.

When 1,000 connections end at once, they leave 100,000 objects in cycles.
"""
JOIN_TIMEOUT_S = 10.0
"""Seconds after which a join that waits for its name is retried and reported in the status."""


@click.command(short_help="Hold roles for other programs of this pod or machine.")
@click.option(
    "--group",
    required=True,
    metavar="G",
    callback=check_group,
    help="The group to join.",
    envvar="RINK_GROUP",
)
@with_name()
@click.option(
    "--listen",
    default=API,
    metavar="ADDRESS",
    help="Where programs call: HOST:PORT of loopback, or unix:PATH.",
)
@click.option(
    "--socket-group",
    metavar="GROUP",
    help="Processes of this group, a name or a number, may use the unix socket.",
)
@click.option(
    "--bearer",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with a token of 32 bytes or more, which each call needs.",
)
@click.option("--insecure", is_flag=True, help="Allow --listen on an address that others reach.")
@click.option(
    "--public",
    default=PUBLIC,
    metavar="ADDRESS",
    help='The address of probes and metrics; "" for none.',
)
@click.option(
    "--page",
    is_flag=True,
    help="Show a page at --public, with names of roles. Everyone who reaches the port can read it.",
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="R",
    callback=check_role,
    help="Hold this role for the whole pod. Needs --grace. May be given more than once.",
)
@click.option(
    "--label-pod",
    multiple=True,
    metavar="R",
    envvar="RINK_LABEL_POD",
    help=(
        "Label this pod while this role is held here, so that a Service selects the pod. May be "
        "given more than once."
    ),
)
@click.option(
    "--files",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the ends of roles into this folder on a tmpfs, for shells and `rink held`.",
)
@click.option(
    "--hold",
    "hold_s",
    metavar="SECONDS",
    type=Seconds(min=1),
    default=10.0,
    help="How far ahead the end of a turn may be. With a --ttl of 20 it is 9 at most.",
)
@click.option(
    "--absent",
    "absent_s",
    metavar="SECONDS",
    type=Seconds(min=0),
    default=10.0,
    help="How long the member stays in the group after the last sign of life of a program.",
)
@click.option(
    "--grace",
    "grace_s",
    metavar="SECONDS",
    type=Seconds(min=0),
    help="How long a program may go on after a loss.  [default: 60]",
)
@click.option(
    "--rebalance-delay",
    metavar="SECONDS",
    type=Seconds(min=0),
    default=60.0,
    help="How long the group waits before it grows for this member.",
)
@with_ttl
@with_leave("a member that takes over")
@click.option(
    "--max-streams",
    metavar="N",
    type=click.IntRange(1, 10_000),
    default=256,
    help="Largest number of open streams.",
)
@with_log_level()
@with_target
def sidecar(
    group: str, name: str | None, listen: str, public: str, page: bool, hold_s: float,
    grace_s: float | None, rebalance_delay: float, ttl: float, handover_wait: float,
    termination_grace: float | None, log_level: str, target: Target, **settings: Any,
) -> None:  # fmt: skip
    """Hold roles for other programs of this pod or machine.

    It runs until SIGTERM or Ctrl-C. The programs call it by HTTP. It joins group G when the first
    program asks for a role. It leaves the group when there has been no sign of life of a program
    for --absent. With --role it joins at once, and stays.
    """
    if settings["roles"] and grace_s is None:
        raise Wrong("--role needs --grace: no program confirms the loss of such a role")
    try:
        from rink import aio
        from rink.sidecar.listeners import Address
        from rink.sidecar.pod_label import RELEASE_WAIT_S
        from rink.sidecar.program import Program, SidecarSettings, exits_at_once
    except ModuleNotFoundError as error:
        text = f"the sidecar needs {error.name}: {install_command('sidecar')}"
        raise NeedsExtra(text) from error
    try:
        sidecar_settings = SidecarSettings(
            listen=Address.of(listen),
            public=Address.of_probes(public) if public else None,
            hold_s=hold_s,
            grace_s=60.0 if grace_s is None else grace_s,
            page=group if page else "",
            **settings,
        )
    except ConfigError as error:
        raise Wrong(str(error)) from error
    log_to_stderr(log_level)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    label_s = RELEASE_WAIT_S if settings["label_pod"] else 0.0
    kubernetes.check_grace(handover_wait + LEAVE_TIMEOUT_S + hold_s + label_s, termination_grace)

    async def run() -> None:
        session = session_at(target, ttl)
        member = partial(
            aio.Rink, session, group, name=name, rebalance_delay=rebalance_delay,
            leave_timeout=LEAVE_TIMEOUT_S, handover_wait=handover_wait, join_timeout=JOIN_TIMEOUT_S,
        )  # fmt: skip
        program = Program(sidecar_settings, session, member)
        with exits_at_once():
            await program.run()

    gc.collect()
    gc.freeze()  # full collections then scan only connections, and not every module
    gc.set_threshold(*GC_THRESHOLDS)
    asyncio.run(run())
