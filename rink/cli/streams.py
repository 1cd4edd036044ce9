"""`rink streams …`: what an operator sees and does of an app's streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import click

from rink.cli import apps, render, render_streams

_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")

_PROCESSOR = click.option("--processor", "-p", metavar="NAME", help="Only this processor.")
_STREAM = click.option("--stream", "-s", metavar="NAME", help="Only this stream.")
_PARTITION = click.option(
    "--partition", "-n", type=click.IntRange(min=0), metavar="N", help="Only this partition."
)


@click.group(short_help="Look after the streams of an app.")
def streams() -> None:
    """Look after the streams of an app: lag, owners, dead letters, offsets.

    Each command takes the app as MODULE:ATTR, as `rink worker` does, and works while workers run.
    """


def _chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which partitions of which processor."""
    for option in (_PARTITION, _STREAM, _PROCESSOR):
        function = option(function)
    return function


def _write(key: str, found: Sequence[Any]) -> None:
    click.echo(json.dumps({key: [attrs.asdict(one) for one in found]}, indent=2))


@streams.command()
@apps.with_app
@_chosen
@_JSON
def lag(app: str, as_json: bool, **chosen: Any) -> None:
    """Show how far each processor is behind, and who holds trimming back."""
    found = apps.load(app)
    from rink.streams import admin

    seen = apps.run(found, lambda: admin.lag(found, **chosen))
    if as_json:
        _write("lag", seen)
    else:
        render.console().print(render_streams.show_lag(seen))
