"""Follow a group, as JSON lines or live on a terminal: `rink watch`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Self

import attrs
import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from rink.cli import observe, render
from rink.cli.group_events import Happening, between
from rink.cli.growth_estimate import growth
from rink.cli.observe import Trouble
from rink.cli.options import Target, check_group, opened, outside, until_ended, with_target
from rink.core.view import View
from rink.engine.clock import Clock
from rink.etcd.api import Etcd
from rink.inspect.group_status import owned_in, settled, status_of_view

REFRESHES_PER_SECOND = 4
ROOM_ROWS = 12
"""Rows of a terminal for the log and for lines that are not about members."""

STYLES = {
    "joined": "green",
    "rejoined": "green",
    "leaving": "yellow",
    "gone": "red",
    "version": "bold cyan",
    "draining": "yellow",
    "problem": "red",
    "trouble": "bold red",
    "settled": "green",
}


@click.command(short_help="Follow GROUP until Ctrl-C.")
@click.argument("group", callback=check_group)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each event.")
@click.option("--wait", is_flag=True, help="Wait for a group that does not exist yet.")
@with_target
def watch(group: str, as_json: bool, wait: bool, target: Target) -> None:
    """Follow GROUP until Ctrl-C: its events, and below them its present state.

    If the output is no terminal, each event is one JSON object a line, as with --json.
    """
    with opened(target) as etcd, until_ended():
        _watch(etcd, target, group, as_json=as_json, may_be_unknown=wait)


def _watch(etcd: Etcd, target: Target, group: str, *, as_json: bool, may_be_unknown: bool) -> None:
    """Follow a group until the caller is interrupted.

    Raises:
        EtcdError: the group could not be read.
        StateError: there is no such group, and `may_be_unknown` is false.
    """
    world = outside()

    def display() -> contextlib.AbstractContextManager[Display]:
        if sys.stdout.isatty() and not as_json:
            return LiveLog(render.console(), group, world.clock)
        return contextlib.nullcontext(JsonLines(group, target.prefix, world.clock))

    source = observe.following(etcd, target.keys(group), world.clock, world.quiet_s)
    with source as views:
        with target.reading(group):
            first = next(item for item in views if isinstance(item, View))
        if observe.is_empty(first) and not may_be_unknown:
            raise target.unknown(group)
        with display() as shown:
            shown.begin(first)
            _follow(first, views, shown)


def _follow(before: View, views: Iterator[View | Trouble], display: Display) -> None:
    was_settled = settled(before, owned_in(before))
    for after in views:
        if isinstance(after, Trouble):
            display.happened(before, was_settled, _trouble_event(after))
            continue
        is_settled = settled(after, owned_in(after))
        for happening in between(before, after, bool(was_settled), bool(is_settled)):
            display.happened(after, is_settled, happening)
        display.now(after)
        before, was_settled = after, is_settled


def _trouble_event(trouble: Trouble) -> Happening:
    text = trouble.text or "etcd answers again"
    return Happening("trouble", text, {"problem": trouble.text})


@attrs.frozen
class JsonLines:
    """Write the group, then each event, as one JSON object a line, flushed."""

    group: str
    prefix: str
    clock: Clock

    def begin(self, view: View) -> None:
        """Write the whole group."""
        facts = {"prefix": self.prefix, **status_of_view(view, self.group).as_json()}
        self._write("status", view.revision, facts)

    def happened(self, view: View, settled: bool | None, happening: Happening) -> None:
        """Write an event, and the group's version and state after it."""
        facts = {
            "text": happening.text,
            **happening.facts,
            "version": view.newest.number if view.newest else 0,
            "settled": settled,
        }
        self._write(happening.event, view.revision, facts)

    def now(self, view: View) -> None:
        """Write nothing, since the events show the state."""

    def _write(self, event: str, revision: int, facts: Mapping[str, Any]) -> None:
        at = self.clock.wall()
        click.echo(json.dumps({"event": event, "at": at, "revision": revision, **facts}))
        sys.stdout.flush()


@attrs.define
class LiveLog:
    """Show a log that scrolls, and below it the current group."""

    console: Console
    group: str
    clock: Clock
    live: Live = attrs.field(init=False)
    view: View = attrs.field(factory=View)
    trouble: str = ""

    def __attrs_post_init__(self) -> None:
        self.live = Live(
            console=self.console,
            get_renderable=self.picture,
            refresh_per_second=REFRESHES_PER_SECOND,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def begin(self, view: View) -> None:
        """Show the group."""
        self.view = view
        self.live.start()

    def happened(self, view: View, settled: bool | None, happening: Happening) -> None:
        """Add a line to the log."""
        del view, settled
        if happening.event == "trouble":
            self.trouble = happening.facts["problem"]
        self.console.print(line(happening, self.clock.wall()))

    def now(self, view: View) -> None:
        """Take the view for the next picture."""
        self.view = view

    def picture(self) -> RenderableType:
        """Draw the group.

        The display's own thread calls this at a fixed rate, so a burst of changes needs no more
        pictures.
        """
        rows = max(3, self.console.height - ROOM_ROWS)
        view = self.view  # read once: the watch's thread may replace it meanwhile
        status = status_of_view(view, self.group)
        shown = render.show(status, rows, growth=growth(view, status, self.clock.wall()))
        parts: list[RenderableType] = [Rule(style="dim"), shown]
        if self.trouble:
            text = render.clean(f"this may be out of date: {self.trouble}")
            parts.append(Text(text, "bold red", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)


Display = JsonLines | LiveLog
"""The outputs of a watch. Each shows the events, and the group after each event."""


def line(happening: Happening, wall: str) -> Text:
    """Return a line of the log."""
    at = datetime.fromisoformat(wall)
    style = STYLES.get(happening.event, "")
    if happening.event == "trouble" and not happening.facts["problem"]:
        style = "green"
    stamp = f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}  "
    return Text.assemble((stamp, "dim"), (render.clean(happening.text), style))
