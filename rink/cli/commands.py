"""Find each command of `rink`, and import it when it is run.

Only the help imports all commands. So `rink --version` imports no command.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import click

from rink.cli.exit_status import Failed, usage_wrapped
from rink.cli.missing_extra import refuse_without_extra
from rink.errors import RinkError
from rink.pip_distribution import DISTRIBUTION

HOMES = {
    "dev": "rink.cli.dev",
    "drain": "rink.cli.draining",
    "forget": "rink.cli.forgetting",
    "groups": "rink.cli.status",
    "held": "rink.cli.held",
    "history": "rink.cli.status",
    "owner": "rink.cli.role_owner",
    "plan": "rink.cli.planning",
    "run": "rink.cli.running",
    "send": "rink.cli.sending",
    "sendmany": "rink.cli.sending",
    "sidecar": "rink.cli.sidecar",
    "status": "rink.cli.status",
    "streams": "rink.cli.stream_admin",
    "wait": "rink.cli.waiting",
    "watch": "rink.cli.watching",
    "worker": "rink.cli.workers",
}
"""The module of each command. The function there has the command's name."""

MIN_HELP_WIDTH = 52
"""Columns from which click chooses the width of help; click makes it 50 or more."""

MIN_TEXT_WIDTH = 24
"""Minimum columns for the texts beside options. With fewer, the texts stand below the options."""


class Help(click.HelpFormatter):
    """Write help that is readable on a narrow terminal, too."""

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write options or commands, each with its text."""
        rows = list(rows)
        names = min(max((len(name) for name, _ in rows), default=0), col_max)
        if self.width - self.current_indent - names - col_spacing >= MIN_TEXT_WIDTH:
            super().write_dl(rows, col_max, col_spacing)
            return
        for name, text in rows:
            self.write(f"{'':{self.current_indent}}{name}\n")
            with self.indentation(), self.indentation():
                self.write_text(text)


class HelpContext(click.Context):
    """Hold a command's parameters, and write its help with `Help`."""

    formatter_class = Help


def _with_help(command: click.Command) -> click.Command:
    """Write the help of a command and its subcommands with `Help`.

    It shows the default and the environment variable of each option.
    """
    command.context_class = HelpContext
    for option in command.params:
        if isinstance(option, click.Option):
            option.show_default = option.show_envvar = True
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _with_help(subcommand)
    return command


class Commands(click.Group):
    """Run a command, and show Rink's errors without a traceback."""

    context_class = HelpContext

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, for the help."""
        del ctx
        return sorted(HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command. Return None if no command has this name."""
        del ctx
        if cmd_name not in HOMES:
            return None
        try:
            module = import_module(HOMES[cmd_name])
        except ModuleNotFoundError as error:
            refuse_without_extra(error)
            raise
        command: click.Command = getattr(module, cmd_name)
        return _with_help(command)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options that stand before the command."""
        with usage_wrapped():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        try:
            with usage_wrapped():
                return super().invoke(ctx)
        except RinkError as error:
            raise Failed("; ".join([str(error), *getattr(error, "__notes__", ())])) from error


def terminal_width() -> int | None:
    """Return the width of help on a narrow terminal, or None otherwise."""
    width = shutil.get_terminal_size().columns
    return width if width < MIN_HELP_WIDTH else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, prog_name="rink")
def commands() -> None:
    """Look at groups, run workers of streams, and start etcd for development.

    Only dev, drain, forget, run, send, sendmany, sidecar, streams and worker change anything. The
    other commands only read: they join no group and write no key.
    """
