"""`rink watch`: a group followed, as JSON lines or live on a terminal."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import attrs
import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from rink.cli import observe, render
from rink.cli.happenings import Happening, between
from rink.cli.look import Look, look_at, settled
from rink.cli.observe import Trouble
from rink.cli.options import Target, outside
from rink.core.view import View
from rink.etcd.api import Etcd

REFRESH_PER_S = 8
ROOM_ROWS = 12
"""Rows of a terminal that are kept for the log and for what is not a member's line."""

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


class Display(Protocol):
    """Where a watch tells what it sees."""

    def begin(self, look: Look) -> None:
        """Show how the group is at first."""

    def happened(self, view: View, happening: Happening) -> None:
        """Tell one thing that happened; `view` is the group after it."""

    def now(self, look: Look) -> None:
        """Show how the group is now."""


def watch(etcd: Etcd, target: Target, group: str, *, as_json: bool, may_be_unknown: bool) -> None:
    """Follow a group until the caller is interrupted.

    Raises:
        EtcdError: the group could not be read.
        StateError: there is no such group, and it may not be unknown.
    """
    world = outside()
    is_live = sys.stdout.isatty() and not as_json
    display: contextlib.AbstractContextManager[Display]
    display = LiveLog(render.console()) if is_live else contextlib.nullcontext(JsonLines())
    source = observe.following(etcd, target.keys(group), world.clock, world.quiet_s)
    before: View | None = None
    with source as views, contextlib.ExitStack() as stack:
        for seen in views:
            if before is None:
                if isinstance(seen, Trouble):
                    continue
                if observe.is_empty(seen) and not may_be_unknown:
                    raise target.unknown(group)
                shown = stack.enter_context(display)
                shown.begin(look_at(seen, group, target.prefix))
                before = seen
            elif isinstance(seen, Trouble):
                shown.happened(before, _told(seen))
            else:
                for happening in between(before, seen):
                    shown.happened(seen, happening)
                shown.now(look_at(seen, group, target.prefix))
                before = seen


def _told(trouble: Trouble) -> Happening:
    text = trouble.text or "etcd answers again"
    return Happening("trouble", text, {"problem": trouble.text})


class JsonLines:
    """One JSON object a line, flushed: first the group as it is, then each event."""

    def begin(self, look: Look) -> None:
        """Write the whole group."""
        self._write("status", look.revision, look.as_json())

    def happened(self, view: View, happening: Happening) -> None:
        """Write an event, with what it leads to."""
        facts = {
            "text": happening.text,
            **happening.facts,
            "version": view.newest.number if view.newest else 0,
            "settled": settled(view),
        }
        self._write(happening.event, view.revision, facts)

    def now(self, look: Look) -> None:
        """Write nothing: the events say it."""

    def _write(self, event: str, revision: int, facts: Mapping[str, Any]) -> None:
        at = outside().clock.wall()
        click.echo(json.dumps({"event": event, "at": at, "revision": revision, **facts}))
        sys.stdout.flush()


@attrs.define
class LiveLog(contextlib.AbstractContextManager["LiveLog"]):
    """A log that scrolls, and stays in the terminal's memory, above the group as it is now."""

    console: Console
    live: Live = attrs.field(init=False)
    look: Look | None = None
    trouble: str = ""

    def __attrs_post_init__(self) -> None:
        self.live = Live(
            console=self.console,
            get_renderable=self._picture,
            refresh_per_second=REFRESH_PER_S,
            vertical_overflow="crop",
        )

    def begin(self, look: Look) -> None:
        """Show the group; the display begins here, so that errors before it stand alone."""
        self.look = look
        self.live.start()

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def happened(self, view: View, happening: Happening) -> None:
        """Add a line to the log."""
        del view
        if happening.event == "trouble":
            self.trouble = happening.facts["problem"]
        self.console.print(line(happening, outside().clock.wall()))

    def now(self, look: Look) -> None:
        """Take what the next picture shows."""
        self.look = look

    def _picture(self) -> RenderableType:
        if self.look is None:
            return Text("")
        rows = max(3, self.console.height - ROOM_ROWS)
        parts: list[RenderableType] = [Rule(style="dim"), render.show(self.look, rows)]
        if self.trouble:
            parts.append(Text(f"this may be out of date: {self.trouble}", "bold red"))
        return Group(*parts)


def line(happening: Happening, wall: str) -> Text:
    """Return a line of the log."""
    at = datetime.fromisoformat(wall)
    style = STYLES.get(happening.event, "")
    if happening.event == "trouble" and not happening.facts["problem"]:
        style = "green"
    stamp = f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}  "
    return Text.assemble((stamp, "dim"), (render.clean(happening.text), style))
