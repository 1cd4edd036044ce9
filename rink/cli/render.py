"""Show a status, a history and a list of groups to people, with rich.

Names come from etcd, where any client may have written them. They pass through `clean` into `Text`,
and never into markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

import attrs
from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rink.cli.growth_estimate import Growth, is_waiting
from rink.cli.leases import RENEWALS_PER_TTL, LeaseAnswer, Leases
from rink.core.wording import MAX_NAMED, some
from rink.inspect.group_status import GroupStatus, MemberStatus
from rink.inspect.version_diff import VersionStep
from rink.plural import plural

PIPE_WIDTH = 160
"""Columns if the output is no terminal. A table is only as wide as its cells."""

UNBOUNDED_WIDTH = 1 << 16

MAX_LINES_SHOWN = 8

NO_LEASES = Leases()


def console(*, stderr: bool = False) -> Console:
    """Make a console on the present stdout or stderr."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        width=None if stream.isatty() else PIPE_WIDTH,
        markup=False,
        highlight=False,
        emoji=False,
    )


def clean(text: str) -> str:
    """Escape unprintable characters, so that a name cannot move the cursor."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def when(stamp: str) -> str:
    """Return a wall-clock time in UTC, or the text if it cannot be parsed."""
    try:
        at = datetime.fromisoformat(stamp)
    except ValueError:
        return clean(stamp) or "-"
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if at.tzinfo else clean(stamp)


Cells = Sequence[Text | str]


@attrs.define
class Listing:
    """Draw rows as a table if it fits, or else as some lines for each row.

    A column whose name begins with `>` has numbers. Empty columns are left out. If a row takes
    several lines, its first `titles` cells are the first line.
    """

    columns: Sequence[str]
    titles: int = 1
    rows: list[Cells] = attrs.field(factory=list)

    def add(self, *cells: Text | str) -> None:
        """Add a row. Its last cells may be missing."""
        self.rows.append((*cells, *[""] * (len(self.columns) - len(cells))))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the rows, for rich, in the width of the console."""
        kept = [at for at in range(len(self.columns)) if any(row[at] for row in self.rows)]
        table = self._empty_table(kept)
        for row in self.rows:
            table.add_row(*(row[at] for at in kept))
        unbounded = options.update(max_width=UNBOUNDED_WIDTH)
        if Measurement.get(console, unbounded, table).maximum <= options.max_width:
            yield table
            return
        for row in self.rows:
            cells = {at: self._named(at, row[at]) for at in kept if str(row[at]) not in ("", "-")}
            yield Text("  ").join(cell for at, cell in cells.items() if at < self.titles)
            facts = [cell for at, cell in cells.items() if at >= self.titles]
            if facts:
                yield Padding(Text(" · ").join(facts), (0, 0, 0, 2))

    def _empty_table(self, kept: Iterable[int]) -> Table:
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            header_style="bold",
            padding=(0, 1, 0, 0),
        )
        for at in kept:
            name = self.columns[at].removeprefix(">")
            is_number = name != self.columns[at]
            justify: JustifyMethod = "right" if is_number else "left"
            table.add_column(name, justify=justify, no_wrap=is_number, overflow="fold")
        return table

    def _named(self, at: int, cell: Text | str) -> Text:
        """Return a cell with its column's name, unless it is a clear title."""
        text = Text(", ").join((cell if isinstance(cell, Text) else Text(cell)).split("\n"))
        name = self.columns[at].removeprefix(">")
        is_plain = name == self.columns[at] and at < self.titles
        return text if is_plain else Text.assemble(f"{name} ", text)


def show(
    status: GroupStatus,
    rows: int | None = None,
    leases: Leases = NO_LEASES,
    since: Mapping[str, str] = MappingProxyType({}),
    growth: Mapping[str, Growth] = MappingProxyType({}),
) -> RenderableType:
    """Show a group, with at most `rows` lines of members.

    `since` has the words about the time since which each member drains.
    """
    return Group(
        _head(status, leases),
        Padding(_because(status), (0, 0, 1, 2), expand=False),
        _members(status, rows, leases),
        *_foot(status, leases, since, growth),
    )


def _head(status: GroupStatus, leases: Leases) -> Text:
    head = Text.assemble((clean(status.group), "bold"), "  ")
    if status.version:
        size = f"{len(status.ranks)} {plural(len(status.ranks), 'rank')}"
        facts = [f"version {status.version}", size, status.scheme or "unreadable"]
    else:
        facts = ["no version yet"]
    if status.coordinator:
        facts.append(f"{status.coordinator} coordinates")
    head.append(clean(" · ".join(facts)) + " · ")
    return head + _settled_text(status, leases)


def _settled_text(status: GroupStatus, leases: Leases = NO_LEASES) -> Text:
    if not status.members:
        return Text("no members", "yellow")
    if status.settled is None:
        return Text("cannot tell whether settled: it has pins by a scheme unknown here", "yellow")
    if not status.settled:
        return Text("not settled", "bold yellow")
    if leases.overdue:
        members, is_one = clean(some(tuple(leases.overdue))), len(leases.overdue) == 1
        does = "does not renew its lease" if is_one else "do not renew their leases"
        return Text(f"settled, but {members} {does}", "bold yellow")
    return Text("settled", "" if leases.problem else "green")


def _because(status: GroupStatus) -> Text:
    if not status.version:
        return Text(f"revision {status.revision}", "dim")
    causes = clean(some(status.because, "; ")) or "no cause given"
    by = f"by {clean(status.by)} at {when(status.proclaimed)}"
    return Text(f"{by} because {causes} · revision {status.revision}", "dim")


def _members(status: GroupStatus, rows: int | None, leases: Leases) -> Listing:
    columns = (">version", "drains", "joined", "lease", "address", "labels")
    listing = Listing((">rank", "member", "state", *columns), titles=3)
    lines = _lines(status, leases)
    hidden = 0 if rows is None else max(0, len(lines) - rows)
    for line in lines[: len(lines) - hidden]:
        listing.add(*line)
    if hidden:
        listing.add("", Text(f"… and {hidden} more", "dim"))
    return listing


def _lines(status: GroupStatus, leases: Leases) -> list[Cells]:
    """Return the lines of members, first the ranked members by rank.

    Ranked members that are gone have a line, too. Waiting members follow, oldest first.
    """
    by_name = {member.name: member for member in status.members}
    ranked = [
        _line(status, by_name[name], leases)
        if name in by_name
        else (str(rank), clean(name), Text("not here", "red"))
        for rank, name in enumerate(status.ranks)
    ]
    waiting = [member for member in status.members if member.rank is None]
    return ranked + [_line(status, member, leases) for member in waiting]


def _line(status: GroupStatus, member: MemberStatus, leases: Leases) -> Cells:
    return (
        "-" if member.rank is None else str(member.rank),
        Text(clean(member.name), "bold" if member.name == status.coordinator else ""),
        _member_state(status, member),
        str(member.version or "-"),
        clean(some(member.draining)),
        when(member.joined),
        _lease(leases.by_member.get(member.name)),
        clean(member.address),
        clean(" ".join(f"{key}={value}" for key, value in member.labels.items())),
    )


def _lease(lease: LeaseAnswer | None) -> Text:
    if lease is None:
        return Text("")
    if lease.is_over:
        return Text("over", "bold yellow")
    return Text(f"≤ {lease.ends_within_s} s", "bold yellow" if lease.renewal_overdue else "")


def _member_state(status: GroupStatus, member: MemberStatus) -> Text:
    coordinates = ", coordinates" if member.name == status.coordinator else ""
    if member.no_rank_because:
        return Text("cannot be ranked" + coordinates, "bold red")
    if is_waiting(member):
        delay = f" ({member.rebalance_delay:g} s)" if member.rebalance_delay is not None else ""
        return Text(f"waiting{delay}{coordinates}", "cyan")
    style = {"active": "", "offering": "yellow", "leaving": "yellow"}.get(member.phase, "bold red")
    return Text(member.phase + coordinates, style)


def _foot(
    status: GroupStatus, leases: Leases, since: Mapping[str, str], growth: Mapping[str, Growth]
) -> Iterable[RenderableType]:
    lines: list[tuple[str, str, str]] = [
        ("in the way", f"{item.member}: {item.why}{since.get(item.member, '')}", "yellow")
        for item in status.in_the_way
    ]
    lines += lease_lines(leases)
    lines += [
        ("offering", f"{member.name}: {member.leaving}", "yellow")
        for member in status.members
        if member.phase == "offering"
    ]
    lines += [
        ("no rank", f"{member.name}: {member.no_rank_because}", "red")
        for member in status.members
        if member.no_rank_because
    ]
    waiting = list(growth.items())
    lines += [
        ("not ranked yet", f"{name}: {item.text()}", "cyan") for name, item in waiting[:MAX_NAMED]
    ]
    if len(waiting) > MAX_NAMED:
        lines.append(("not ranked yet", f"and {len(waiting) - MAX_NAMED} more", "cyan"))
    lines += [("pin", f"{role} → {member}", "") for role, member in sorted(status.pins.items())]
    lines += [("token base", str(status.token_base), "")] if status.token_base else []
    lines += [("asked for", request, "") for request in status.requests]
    for setting, values in status.settings_differ.items():
        each = "; ".join(f"{value} ({some(members)})" for value, members in values.items())
        lines.append(("settings differ", f"{setting} {each}", "yellow"))
    lines += [("problem", f"{key} {what}", "red") for key, what in status.problems]
    if lines:
        yield Text("")
        yield titled(lines)


def lease_lines(leases: Leases) -> list[tuple[str, str, str]]:
    """Return lines about leases that are overdue or unknown, for `titled`."""
    lines = [
        ("not renewed", f"{name}: {_overdue(lease)}", "yellow")
        for name, lease in leases.overdue.items()
    ]
    return lines + ([("leases unknown", leases.problem, "yellow")] if leases.problem else [])


def _overdue(lease: LeaseAnswer) -> str:
    if lease.is_over:
        return "its lease is over, and its record is gone by now"
    every = round(lease.ttl_s / RENEWALS_PER_TTL, 1)
    return (
        f"its lease was not renewed for {lease.not_renewed_s} s or more (normally every {every:g} "
        f"s). If the member is dead, its record ends within {lease.ends_within_s} s"
    )


def titled(lines: Iterable[tuple[str, str, str]]) -> Table:
    """Return the lines below a table: each a title, a text and its style."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for title, text, style in lines:
        table.add_row(Text(title, "bold"), Text(clean(text), style))
    return table


def show_history(steps: list[VersionStep]) -> RenderableType:
    """Show versions, oldest first, so that the newest is next to the prompt."""
    listing = Listing((">version", "proclaimed", "by", "because", "what changed"), titles=2)
    for step in steps:
        version = step.entry.version
        if version is None:
            listing.add(str(step.entry.number), Text(clean(step.entry.problem), "red"))
            continue
        listing.add(
            str(version.number),
            when(version.proclaimed),
            clean(version.by),
            "\n".join(_first(version.because)),
            _changed(step, len(version.ranks)),
        )
    return listing


def _changed(step: VersionStep, size: int) -> Text:
    if step.changed is None:
        return Text(f"{size} {plural(size, 'rank')}; the version before is not kept", "dim")
    moves = _first([str(move) for move in step.changed.moves])
    return Text("\n".join(moves)) if moves else Text("no rank", "dim")


def _first(lines: Sequence[str]) -> list[str]:
    hidden = len(lines) - MAX_LINES_SHOWN
    if hidden < 2:  # "… and 1 more" would take as much room as the line itself
        return [clean(line) for line in lines]
    return [*(clean(line) for line in lines[:MAX_LINES_SHOWN]), f"… and {hidden} more"]


def show_groups(
    statuses: list[GroupStatus], hidden: int, strays: tuple[str, ...]
) -> RenderableType:
    """Show groups, one a line, and below them the number of hidden groups."""
    listing = Listing(("group", ">version", ">ranks", ">members", "coordinator", "state"))
    for status in statuses:
        listing.add(
            Text(clean(status.group), "bold"),
            str(status.version or "-"),
            str(len(status.ranks)),
            str(len(status.members)),
            clean(status.coordinator or "-"),
            _settled_text(status),
        )
    parts: list[RenderableType] = [listing] if statuses else []
    if hidden:
        are, them = ("is", "it") if hidden == 1 else ("are", "them")
        number = f"{hidden} {plural(hidden, 'group')}"
        parts.append(Text(f"{number} without members {are} hidden: --all shows {them}", "dim"))
    if strays:
        parts.append(Text(f"not keys of a group: {clean(some(strays))}", "yellow"))
    return Group(*parts)
