"""How a status, a history and a list of groups are shown to people, with rich.

Names come from etcd, where anybody may have written them: they go through `clean` and into `Text`,
never into markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rink.changes import Step
from rink.core.record import some
from rink.seen import GroupStatus, MemberStatus

PIPE_WIDTH = 160
"""Columns where there is no terminal to ask; tables take no more than they need."""

LINES_SHOWN = 8


def console(*, stderr: bool = False) -> Console:
    """Make a console on stdout, or stderr, as it is now."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        width=None if stream.isatty() else PIPE_WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )


def clean(text: str) -> str:
    """Escape what is not printable: a name must not move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def when(stamp: str) -> str:
    """Shorten a wall-clock time to seconds, in UTC; what cannot be read is shown as it is."""
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return clean(stamp) or "-"
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if at.tzinfo else clean(stamp)


def names(found: Mapping[str, str]) -> str:
    """Write labels out, `key=value`."""
    return clean(" ".join(f"{key}={value}" for key, value in found.items()))


def table(*columns: str) -> Table:
    """Make a table in the common style; columns that begin with `>` are of numbers."""
    made = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        header_style="bold",
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        is_number = column.startswith(">")
        made.add_column(
            column.removeprefix(">"),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    return made


# ── one group ────────────────────────────────────────────────────────────────────────────────────


def show(status: GroupStatus, rows: int | None = None) -> RenderableType:
    """Show a group; at most `rows` lines of members, those that matter most first."""
    return Group(
        _head(status),
        Padding(_because(status), (0, 0, 1, 2), expand=False),
        _members(status, rows),
        *_foot(status),
    )


def _head(status: GroupStatus) -> Text:
    head = Text.assemble((clean(status.group), "bold"), "  ")
    if status.version:
        size = f"{len(status.ranks)} rank" + "s" * (len(status.ranks) != 1)
        facts = [f"version {status.version}", size, status.scheme or "unreadable"]
    else:
        facts = ["no version yet"]
    if status.coordinator:
        facts.append(f"{status.coordinator} coordinates")
    head.append(clean(" · ".join(facts)) + " · ")
    return head + _settled(status)


def _settled(status: GroupStatus) -> Text:
    if not status.members:
        return Text("nobody is here", "yellow")
    if status.settled is None:
        return Text("cannot tell whether settled: it has pins, by a scheme unknown here", "yellow")
    return Text("settled", "green") if status.settled else Text("not settled", "bold yellow")


def _because(status: GroupStatus) -> Text:
    if not status.version:
        return Text(f"revision {status.revision}", "dim")
    causes = clean(some(status.because, "; ")) or "no cause given"
    by = f"by {clean(status.by)} at {when(status.proclaimed)}"
    return Text(f"{by} because {causes} · revision {status.revision}", "dim")


def _members(status: GroupStatus, rows: int | None) -> RenderableType:
    made = table(">rank", "member", "state", ">version", "drains", "joined", "labels")
    lines = _lines(status)
    hidden = 0 if rows is None else max(0, len(lines) - rows)
    for line in lines[: len(lines) - hidden]:
        made.add_row(*line)
    if hidden:
        made.add_row("", Text(f"… and {hidden} more", "dim"))
    return made


def _lines(status: GroupStatus) -> list[tuple[Text | str, ...]]:
    """Ranked members by rank, with those that are gone; then those that wait, oldest first."""
    by_name = {member.name: member for member in status.members}
    ranked = [
        _line(status, by_name[name])
        if name in by_name
        else (str(rank), clean(name), Text("not here", "red"))
        for rank, name in enumerate(status.ranks)
    ]
    return ranked + [_line(status, member) for member in status.members if member.rank is None]


def _line(status: GroupStatus, member: MemberStatus) -> tuple[Text | str, ...]:
    return (
        "-" if member.rank is None else str(member.rank),
        Text(clean(member.name), "bold" if member.name == status.coordinator else ""),
        _state(status, member),
        str(member.version or "-"),
        clean(some(member.draining)),
        when(member.joined),
        names(member.labels),
    )


def _state(status: GroupStatus, member: MemberStatus) -> Text:
    coordinates = ", coordinates" if member.name == status.coordinator else ""
    if member.no_rank_because:
        return Text("cannot be ranked" + coordinates, "bold red")
    if member.phase == "active" and member.rank is None:
        delay = f" ({member.rebalance_delay:g} s)" if member.rebalance_delay is not None else ""
        return Text(f"waiting{delay}{coordinates}", "cyan")
    style = {"active": "", "leaving": "yellow"}.get(member.phase, "bold red")
    return Text(member.phase + coordinates, style)


def _foot(status: GroupStatus) -> Iterable[RenderableType]:
    lines: list[tuple[str, str, str]] = [
        ("in the way", f"{one.member}: {one.why}", "yellow") for one in status.in_the_way
    ]
    lines += [
        ("no rank", f"{member.name}: {member.no_rank_because}", "red")
        for member in status.members
        if member.no_rank_because
    ]
    lines += [("pin", f"{role} → {member}", "") for role, member in sorted(status.pins.items())]
    lines += [("token base", str(status.token_base), "")] if status.token_base else []
    lines += [("asked for", wish, "") for wish in status.requests]
    for setting, values in status.settings_differ.items():
        each = "; ".join(f"{value} ({some(who)})" for value, who in values.items())
        lines.append(("settings differ", f"{setting} {each}", "yellow"))
    lines += [("problem", f"{key} {what}", "red") for key, what in status.problems]
    if lines:
        yield Text("")
        yield titled(lines)


def titled(lines: Iterable[tuple[str, str, str]]) -> Table:
    """Return lines below a table, each a title, a text and the text's style."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for title, text, style in lines:
        made.add_row(Text(title, "bold"), Text(clean(text), style))
    return made


# ── versions, and groups ─────────────────────────────────────────────────────────────────────────


def show_history(steps: list[Step]) -> RenderableType:
    """Show versions, oldest first, so that the newest stands where the eye is."""
    made = table(">version", "proclaimed", "by", "because", "what changed")
    for step in steps:
        version = step.entry.version
        if version is None:
            made.add_row(str(step.entry.number), Text(clean(step.entry.problem), "red"))
            continue
        made.add_row(
            str(version.number),
            when(version.proclaimed),
            clean(version.by),
            "\n".join(_first(version.because)),
            _changed(step, len(version.ranks)),
        )
    return made


def _changed(step: Step, size: int) -> Text:
    if step.changed is None:
        return Text(f"{size} ranks; the version before is not kept", "dim")
    moves = _first([str(move) for move in step.changed.moves])
    return Text("\n".join(moves)) if moves else Text("no rank", "dim")


def _first(lines: Sequence[str]) -> list[str]:
    hidden = len(lines) - LINES_SHOWN
    if hidden < 2:  # saying that there is one more takes as much room as that one
        return [clean(line) for line in lines]
    return [*(clean(line) for line in lines[:LINES_SHOWN]), f"… and {hidden} more"]


def show_groups(statuses: list[GroupStatus], strays: tuple[str, ...]) -> RenderableType:
    """Show the groups under a prefix, a line each."""
    made = table("group", ">version", ">ranks", ">members", "coordinator", "state")
    for status in statuses:
        made.add_row(
            Text(clean(status.group), "bold"),
            str(status.version or "-"),
            str(len(status.ranks)),
            str(len(status.members)),
            clean(status.coordinator or "-"),
            _settled(status),
        )
    if not strays:
        return made
    return Group(made, Text(f"not keys of a group: {clean(some(strays))}", "yellow"))
