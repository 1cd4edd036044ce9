"""How a command ends: its exit status, and the line on stderr that says why.

0 is success, and yes to a question. 1 is an error. 2 is wrong usage, which click reports. 3 is no
to a question of a script.
"""

from __future__ import annotations

from typing import Any

import click

NO = 3
"""The exit status of a command that was asked a question and answers no."""


class Failed(click.ClickException):
    """An error of Rink's, shown as one line without a traceback; the exit status is 1."""

    def show(self, file: Any = None) -> None:
        """Say it on stderr."""
        click.echo(f"rink: {self.format_message()}", file=file, err=True)


class Not(Failed):
    """The answer no, with the line that says why; the exit status is 3."""

    exit_code = NO
