"""Shows the scene: live on a terminal, as plain lines elsewhere."""

import time
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flights_demo.scene import LOG_LINES, Member, Scene

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


def draw(scene: Scene) -> Panel:
    progress = Table.grid(expand=True, padding=(0, 1))
    progress.add_column(ratio=1)
    progress.add_column(justify="right", no_wrap=True)
    progress.add_row(
        ProgressBar(total=scene.jobs, completed=scene.jobs_done),
        f"{scene.jobs_done:,} of {scene.jobs:,} jobs",
    )
    log = Text(no_wrap=True, overflow="ellipsis")
    for at, text in scene.log:
        log.append(f"{at - scene.began:6.2f} s  ", "dim")
        log.append(f"{text}\n", line_style(text))
    log.append("\n" * (LOG_LINES - len(scene.log)))  # so that the frame keeps its height
    return Panel(
        Group(progress, Text(), members_table(scene), Text(), log),
        title=f"Rink: a year of flights · {scene.phase} · {scene.now - scene.began:.0f} s",
        title_align="left",
    )


class LiveDisplay:
    """Redraws one frame in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._drawn = 0.0
        self._scene: Scene | None = None

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._scene:
            self._live.update(draw(self._scene))  # the last frame is the one that stays
        self._live.__exit__(None, None, None)

    def show(self, scene: Scene) -> None:
        self._scene = scene
        if time.monotonic() - self._drawn >= REDRAW_EVERY:
            self._live.update(draw(scene), refresh=True)
            self._drawn = time.monotonic()


class PlainDisplay:
    """One line per thing that happened, and now and then one about the progress."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = 0
        self._next_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def show(self, scene: Scene) -> None:
        new = scene.logged - self._shown
        self._shown = scene.logged
        for at, text in list(scene.log)[-new:] if new else []:
            self._line(f"{at - scene.began:6.2f} s  {text}")
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            held = "  ".join(
                self._member(scene, member)
                for member in scene.members.values()
                if not member.is_over
            )
            self._line(
                f"{scene.now - scene.began:6.2f} s  {scene.jobs_done:,} of {scene.jobs:,} jobs  {held}"
            )

    def _member(self, scene: Scene, member: Member) -> str:
        rank = scene.rank(member.name)
        return f"{member.name}:{'-' if rank is None else rank}:{member.state}"

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def make_display(console: Console) -> LiveDisplay | PlainDisplay:
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)
