"""End a command with an exit status, and with the reason on stderr.

0 is success, or yes to a script's question. 1 is an error. 2 is wrong usage, which click reports.
3 is no to a script's question.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, TextIO

import click

NO = 3
"""The exit status of a command that answers a question with no."""


def columns(stream: TextIO) -> int | None:
    """Return the width of a terminal, or None if the stream is no terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(text: str, stream: TextIO) -> str:
    """Wrap a text at words, and keep text in backticks together."""
    width = columns(stream)
    if width is None:
        return text
    text = re.sub("`[^`\n]*`", lambda code: code[0].replace(" ", "\0"), text)
    lines = [
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    ]
    return "\n".join(lines).replace("\0", " ")


def say(text: str) -> None:
    """Write a line to stderr."""
    click.echo(wrapped(text, sys.stderr), err=True)


def tell(text: str) -> None:
    """Write a line to stdout."""
    click.echo(wrapped(text, sys.stdout))


class Failed(click.ClickException):
    """Show an error as one line without a traceback, and exit with 1."""

    def show(self, file: Any = None) -> None:
        """Write the error to stderr."""
        stream = file or sys.stderr
        click.echo(wrapped(f"rink: {self.format_message()}", stream), file=stream)


class Wrong(click.UsageError):
    """Show wrong usage, wrapped to the width of the terminal, and exit with 2."""

    def show(self, file: Any = None) -> None:
        """Write the error to stderr."""
        stream = file or sys.stderr
        text = io.StringIO()
        super().show(text)
        click.echo(wrapped(text.getvalue(), stream), file=stream, nl=False)


@contextlib.contextmanager
def usage_wrapped() -> Iterator[None]:
    """Wrap click's own usage errors in the same way as Rink's.

    An error with its own `show` stays as it is: a `Wrong` is wrapped already, and a group without
    a command shows its help.
    """
    try:
        yield
    except click.UsageError as error:
        if type(error).show is not click.UsageError.show:
            raise
        raise Wrong(error.format_message(), error.ctx) from error


class Not(Failed):
    """Answer no with the reason, and exit with 3."""

    exit_code = NO
