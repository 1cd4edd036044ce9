"""Draw a show: live on a terminal, as plain lines elsewhere."""

import time
from collections.abc import Callable, Iterable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from common.show import LOG_LINES, Actor, Show

STYLES = {
    "starting": "dim",
    "running": "green",
    "leaving": "yellow",
    "frozen": "bold cyan",
    "killed": "bold red",
    "gone": "dim",
}
REDRAW_INTERVAL_S = 0.1
LINE_INTERVAL_S = 3.0


def actors_table(*headings: str) -> Table:
    """Return an empty table of processes with these headings."""
    table = Table(expand=True, box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def add_actor(table: Table, actor: Actor, cells: Iterable[str]) -> None:
    """Add the row of a process: its name, its pid, its state and the cells."""
    table.add_row(
        actor.name,
        str(actor.pid),
        state_text(actor.state),
        *cells,
        style="dim" if actor.is_over else "",
    )


def state_text(state: str) -> Text:
    return Text(state, STYLES.get(state, "yellow"))


def line_style(text: str) -> str:
    for word, style in (("—", "bold"), ("frozen", "cyan"), ("refused", "cyan"), ("killed", "red")):
        if word in text:
            return style
    return ""


def bar(completed: int, total: int, text: str) -> Table:
    """Return a progress bar with a text beside it."""
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(ProgressBar(total=total, completed=completed), text)
    return table


def log_lines(show: Show) -> Text:
    """Return the last lines of the log, at a fixed height."""
    log = Text(no_wrap=True, overflow="ellipsis")
    for at, text in show.log:
        log.append(f"{at - show.began:6.2f} s  ", "dim")
        log.append(f"{text}\n", line_style(text))
    log.append("\n" * (LOG_LINES - len(show.log)))  # so that the frame keeps its height
    return log


def frame(show: Show, title: str, *parts: RenderableType) -> Panel:
    """Return a demo's frame: its parts, and the log below them."""
    return Panel(
        Group(*parts, Text(), log_lines(show)),
        title=f"{title} · {show.phase} · {show.now - show.began:.0f} s",
        title_align="left",
    )


class LiveDisplay:
    """Redraw one frame in place."""

    def __init__(self, console: Console, draw: Callable[[Show], Panel]) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._draw = draw
        self._drawn = 0.0
        self._scene: Show | None = None

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._scene:
            self._live.update(self._draw(self._scene))  # the last frame is the one that stays
        self._live.__exit__(None, None, None)

    def show(self, scene: Show) -> None:
        self._scene = scene
        if time.monotonic() - self._drawn >= REDRAW_INTERVAL_S:
            self._live.update(self._draw(scene), refresh=True)
            self._drawn = time.monotonic()


class PlainDisplay:
    """Print one line per event of the log, and now and then the progress."""

    def __init__(self, console: Console, progress: Callable[[Show], str]) -> None:
        self._console = console
        self._progress = progress
        self._shown = 0
        self._next_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def show(self, scene: Show) -> None:
        new = scene.logged - self._shown
        self._shown = scene.logged
        for at, text in list(scene.log)[-new:] if new else []:
            self._line(f"{at - scene.began:6.2f} s  {text}")
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_INTERVAL_S
            self._line(f"{scene.now - scene.began:6.2f} s  {self._progress(scene)}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)


Display = LiveDisplay | PlainDisplay


def make_display(
    console: Console, draw: Callable[[Show], Panel], progress: Callable[[Show], str]
) -> Display:
    """Return a live display on a terminal, and a plain one elsewhere."""
    return LiveDisplay(console, draw) if console.is_terminal else PlainDisplay(console, progress)
