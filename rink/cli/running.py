"""Run a command while a role is held: `rink run`."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from rink.cli import kubernetes
from rink.cli.exit_status import Wrong
from rink.cli.joining import log_to_stderr, session_at, with_leave, with_name, with_ttl
from rink.cli.options import Seconds, Target, check_group, check_role, name_check, with_target
from rink.errors import RinkError
from rink.pip_distribution import install_command

if TYPE_CHECKING:
    from rink.run.supervisor import Beside

DEFAULT_GRACE_S = 10.0

THIS_MINUTE = ""
"""The value of `--once-per` without a slot."""


class WrongRun(Wrong):
    """Report wrong usage of `rink run` by 125, since commands may exit with 2."""

    exit_code = 125


class RunCommand(click.Command):
    """Exit with 125 if the usage is wrong."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """Read the options."""
        try:
            return super().make_context(*args, **more)
        except click.UsageError as error:
            raise WrongRun(error.format_message(), error.ctx) from error


def _check_slot(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value != THIS_MINUTE:
        name_check("slot")(ctx, param, value)
    return value


@click.command(
    cls=RunCommand,
    short_help="Run a command while a role is held.",
    context_settings={"allow_interspersed_args": False},  # options after COMMAND belong to it
)
@click.option(
    "--group", required=True, metavar="G", callback=check_group, help="The group to join."
)
@click.option(
    "--role", required=True, metavar="R", callback=check_role, help="The role to wait for."
)
@click.option(
    "--grace",
    metavar="SECONDS",
    type=Seconds(min=0),
    default=DEFAULT_GRACE_S,
    help="Seconds from the command's SIGTERM to its SIGKILL.",
)
@click.option(
    "--wait",
    metavar="SECONDS",
    type=Seconds(min=0, min_open=True),
    help="Exit with 75 if this host does not get the role within this time.  "
    "[default: wait for ever]",
)
@click.option("--once", is_flag=True, help="Exit with 124 if the role is lost.")
@click.option("--restart", is_flag=True, help="Start the command again when it ends by itself.")
@click.option(
    "--once-per",
    "slot",
    metavar="[SLOT]",
    is_flag=False,
    flag_value=THIS_MINUTE,
    callback=_check_slot,
    help="Run at most once per slot, over all hosts.  [default SLOT: this minute, in UTC]",
)
@click.option(
    "--retry-if-unfinished",
    is_flag=True,
    help="With --once-per: run a slot again if its earlier run did not exit with a code.",
)
@with_name()
@with_ttl
@with_leave("a successor; the command goes on meanwhile")
@click.option(
    "--public",
    metavar="ADDRESS",
    help="Serve /startz, /healthz, /readyz and /metrics at HOST:PORT; needs the extra sidecar.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@with_target
def run(
    slot: str | None,
    ttl: float,
    termination_grace: float | None,
    public: str | None,
    target: Target,
    **settings: Any,
) -> None:
    """Run COMMAND while this host holds role R of group G.

    When the role is lost, the command is stopped. Then `rink run` waits for the role again, unless
    --once is given. When the command ends by itself, `rink run` exits with its code, unless
    --restart is given.
    """
    started_at = time.time()
    _open_standard_files()
    if os.getpid() == 1:  # the system's default ignores SIGTERM in process 1
        signal.signal(signal.SIGTERM, _exit)
    from rink.run import exit_codes
    from rink.run.log_thread import LogThread
    from rink.run.run_settings import RunSettings
    from rink.run.slots import minute_slot
    from rink.run.supervisor import supervise

    lines = LogThread()
    log_to_stderr("info", lines)
    try:
        slot = minute_slot(started_at) if slot == THIS_MINUTE else slot
        run_settings = RunSettings(slot=slot, **settings)
        program = run_settings.command[0]
        if shutil.which(program) is None and not Path(program).exists():
            logging.getLogger("rink.run").error("command %r was not found", program)
            lines.flush()
            exit_codes.end(exit_codes.ExitStatus(exit_codes.NOT_FOUND))
        kubernetes.check_grace(run_settings.leaves_within_s, termination_grace)
        session = session_at(target, ttl)
        beside = None if public is None else _prober(public, session.margin)
    except RinkError as error:
        lines.flush()
        raise WrongRun(str(error)) from error
    outcome = supervise(run_settings, session, beside)
    lines.flush()
    exit_codes.end(outcome)


def _prober(address: str, margin: float) -> Beside:
    try:
        from rink.cli.probing import prober
    except ModuleNotFoundError as error:
        text = f"--public needs {error.name}: {install_command('sidecar')}"
        raise WrongRun(text) from error
    return prober(address, margin)


def _open_standard_files() -> None:
    """Open /dev/null instead of a closed stdin, stdout or stderr.

    Otherwise a pipe or a connection would get this number, and log lines would be written to it.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number


def _exit(number: int, _: FrameType | None) -> None:
    sys.stderr.flush()
    os._exit(128 + number)
