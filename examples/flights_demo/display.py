"""Shows the scene: live on a terminal, as plain lines elsewhere."""

import time
from collections.abc import Callable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flights_demo.scene import Scene
from flights_demo.show import LOG_LINES, Show

STYLES = {
    "starting": "dim",
    "running": "green",
    "leaving": "yellow",
    "frozen": "bold cyan",
    "killed": "bold red",
    "gone": "dim",
}
REDRAW_EVERY = 0.1
LINE_EVERY = 3.0


def members_table(scene: Scene) -> Table:
    table = Table(expand=True, box=None, header_style="bold", pad_edge=False)
    for heading in ("member", "pid", "rank", "state", "job in hand"):
        table.add_column(heading, no_wrap=True)
    table.add_column("jobs done", justify="right", no_wrap=True)
    table.add_column("carriers' boards", ratio=1, no_wrap=True)
    for member in scene.members.values():
        rank = scene.rank(member.name)
        state = member.state
        if state == "running" and rank is None:
            state = "waiting"
        table.add_row(
            member.name,
            str(member.pid),
            "" if rank is None else str(rank),
            Text(state, STYLES.get(state, "yellow")),
            member.job,
            str(member.jobs_done),
            " ".join(sorted(member.carriers)),
            style="dim" if member.is_over else "",
        )
    return table


def line_style(text: str) -> str:
    for word, style in (("—", "bold"), ("frozen", "cyan"), ("refused", "cyan"), ("killed", "red")):
        if word in text:
            return style
    return ""


def bar(completed: int, total: int, text: str) -> Table:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(ProgressBar(total=total, completed=completed), text)
    return table


def log_lines(show: Show) -> Text:
    log = Text(no_wrap=True, overflow="ellipsis")
    for at, text in show.log:
        log.append(f"{at - show.began:6.2f} s  ", "dim")
        log.append(f"{text}\n", line_style(text))
    log.append("\n" * (LOG_LINES - len(show.log)))  # so that the frame keeps its height
    return log


def frame(show: Show, title: str, *parts: RenderableType) -> Panel:
    return Panel(
        Group(*parts, Text(), log_lines(show)),
        title=f"{title} · {show.phase} · {show.now - show.began:.0f} s",
        title_align="left",
    )


def draw(scene: Scene) -> Panel:
    progress = bar(scene.jobs_done, scene.jobs, f"{scene.jobs_done:,} of {scene.jobs:,} jobs")
    return frame(scene, "Rink: a year of flights", progress, Text(), members_table(scene))


def progress_line(scene: Scene) -> str:
    held = "  ".join(
        f"{member.name}:{'-' if (rank := scene.rank(member.name)) is None else rank}:{member.state}"
        for member in scene.members.values()
        if not member.is_over
    )
    return f"{scene.jobs_done:,} of {scene.jobs:,} jobs  {held}"


class LiveDisplay:
    """Redraws one frame in place."""

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
        if time.monotonic() - self._drawn >= REDRAW_EVERY:
            self._live.update(self._draw(scene), refresh=True)
            self._drawn = time.monotonic()


class PlainDisplay:
    """One line per thing that happened, and now and then one about the progress."""

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
            self._next_line = time.monotonic() + LINE_EVERY
            self._line(f"{scene.now - scene.began:6.2f} s  {self._progress(scene)}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)


def make_display(
    console: Console,
    draw: Callable[[Show], Panel] = draw,
    progress: Callable[[Show], str] = progress_line,
) -> LiveDisplay | PlainDisplay:
    return LiveDisplay(console, draw) if console.is_terminal else PlainDisplay(console, progress)
