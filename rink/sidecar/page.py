"""Show a sidecar to people: one HTML page without scripts, for `--page`.

The page has the names of roles and consumers, which the metrics omit. It never has a grant, which
is a secret of a consumer. Names come from programs and from etcd, so every text is escaped.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from html import escape
from operator import attrgetter, itemgetter

import attrs
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from rink import aio
from rink._member_internals import status_without_waits
from rink.inspect.group_status import GroupStatus
from rink.sidecar import answers
from rink.sidecar.consumers import Turn
from rink.sidecar.effects import Granted, Over, SidecarEffect, TurnLost
from rink.sidecar.membership import Membership, MembershipState
from rink.sidecar.service import Service

MAX_ROWS = 200
"""The maximum number of rows of a table. Below, the page shows the number of further rows."""
MAX_EVENTS = 30
REFRESH_INTERVAL_S = 5
MAX_AGE_MS = 1_000
"""The maximum age of a page that is sent again."""

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

STYLE = """
:root { color-scheme: light dark; --text: #222; --soft: #5c5c5c; --line: #e3e3e3; --back: #fff;
  --good: #1f7a43; --bad: #b02a1c; --busy: #8a5a00 }
@media (prefers-color-scheme: dark) { :root { --text: #e4e4e4; --soft: #a0a0a0; --line: #383838;
  --back: #161616; --good: #62c48a; --bad: #f08a7d; --busy: #e0b050 } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 1120px; margin: 1.5em auto; padding: 0 1em }
h1 { font-size: 1.5em; margin: 0 0 .2em; overflow-wrap: anywhere }
h2 { font-size: 1.15em; margin: 1.8em 0 .3em } h2 span, p, caption { color: var(--soft) }
h2 span { font-weight: normal; font-size: .9em; margin-left: .4em }
p { margin: .3em 0; overflow-wrap: anywhere } p b { color: var(--text) }
table { border-collapse: collapse; width: 100%; font-size: .93em }
th, td { padding: .3em .8em .3em 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere }
th { font-weight: 600; color: var(--soft) }
th, .short { white-space: nowrap; overflow-wrap: normal }
td:first-child { min-width: 8em } td:last-child { min-width: 18em }
.good { color: var(--good); font-weight: 600 } .bad { color: var(--bad); font-weight: 600 }
.busy { color: var(--busy); font-weight: 600 }
@media (max-width: 40em) {
  thead { display: none }
  tr { display: block; border-bottom: 1px solid var(--line); padding: .4em 0 }
  td { display: grid; grid-template-columns: 7em 1fr; border: 0; padding: .1em 0;
    min-width: 0 !important }
  td::before { content: attr(data-of); color: var(--soft) }
  td.short { white-space: normal } td.none { display: none }
}
"""


@attrs.frozen
class Cell:
    """Hold a cell of a table.

    `mark` is the CSS class of its text. A short text, such as a number, is not wrapped.
    """

    text: str
    mark: str = ""
    is_short: bool = False


PageRow = tuple[Cell, ...]


@attrs.frozen(kw_only=True)
class TableRows:
    """Hold the shown rows of a table, and the number of all its rows."""

    shown: list[PageRow]
    count: int


@attrs.frozen(kw_only=True)
class Shown:
    """Hold all facts that a page shows.

    `status` is the status of the group, or None while the sidecar has not joined. `me` is the
    member's name.
    """

    group: str
    state: Cell
    member: list[tuple[str, str]]
    turns: TableRows
    waits: TableRows
    status: GroupStatus | None
    me: str
    events: TableRows


class Page:
    """Answer with the page, which is built at most once a second."""

    def __init__(self, service: Service, membership: Membership, group: str) -> None:
        self._service = service
        self._membership = membership
        self._group = group
        self._events: deque[tuple[int, PageRow]] = deque(maxlen=MAX_EVENTS)
        self._built_ms: int | None = None
        self._body = ""
        service.on_change.append(self._note)

    async def answer(self, request: Request) -> Response:
        """Return the page, which may be up to a second old."""
        del request
        now = self._service.clock()
        if self._built_ms is None or now >= self._built_ms + MAX_AGE_MS:
            self._body, self._built_ms = html(self._look(now)), now
        return HTMLResponse(self._body, headers=HEADERS)

    def _note(self, effect: SidecarEffect) -> None:
        match effect:
            case Granted(turn):
                what, why = Cell("granted", "good", is_short=True), ""
            case TurnLost(turn):
                what, why = Cell("lost", "busy", is_short=True), turn.why
            case Over(turn, why):
                what = Cell("over", is_short=True)
            case _:
                return
        row = (what, *_names(turn), Cell(str(turn.token), is_short=True), Cell(why))
        self._events.append((self._service.clock(), row))

    def _look(self, now: int) -> Shown:
        service, rink = self._service, self._membership.rink
        return Shown(
            group=self._group,
            state=self._state(now),
            member=self._member(now, rink),
            turns=_turns(service, now),
            waits=_waits(service),
            status=status_without_waits(rink) if rink else None,
            me=rink.name if rink else "",
            events=TableRows(
                shown=[
                    (Cell(f"{_seconds(now - at_ms)} ago", is_short=True), *row)
                    for at_ms, row in reversed(self._events)
                ],
                count=len(self._events),
            ),
        )

    def _state(self, now: int) -> Cell:
        membership = self._membership
        text = membership.state.value + (membership.trouble and f": {membership.trouble}")
        if self._service.draining:
            return Cell(f"{text}, draining: {self._service.draining}", "busy")
        if membership.state is MembershipState.ABSENT:
            return Cell(text)
        if membership.state is not MembershipState.JOINED:
            return Cell(text, "bad" if membership.trouble else "busy")
        if membership.session()[1] <= now:
            return Cell("the session is lost", "bad")
        return Cell(text, "good")

    def _member(self, now: int, rink: aio.Rink | None) -> list[tuple[str, str]]:
        if rink is None:
            return []
        rank, version = rink.rank, rink.version
        left_ms = max(0, self._membership.session()[1] - now)
        return [
            ("member", rink.name),
            ("rank", f"{rank} of {rink.size}" if rank is not None else "none yet"),
            ("version", str(version.number) if version else "none yet"),
            ("session ends in", _seconds(left_ms)),
        ]


def _names(turn: Turn) -> tuple[Cell, Cell]:
    return Cell(turn.role), Cell(turn.consumer.name)


def _turns(service: Service, now: int) -> TableRows:
    first = heapq.nsmallest(MAX_ROWS, service.turns.turns(), key=attrgetter("role"))
    count = sum(len(consumer.turns) for consumer in service.turns.consumers.values())
    return TableRows(shown=[_turn(turn, now) for turn in first], count=count)


def _turn(turn: Turn, now: int) -> PageRow:
    state = Cell("held", "good")
    if turn.lost_at_ms is not None:
        state = Cell(f"lost: {turn.why}", "busy")
    elif turn.until_ms <= now:
        state = Cell("its end has passed", "bad")
    return (
        *_names(turn),
        Cell(str(turn.token), is_short=True),
        Cell(_seconds(max(0, turn.until_ms - now)), is_short=True),
        state,
    )


def _waits(service: Service) -> TableRows:
    consumers = service.turns.consumers.values()
    waits = ((role, consumer) for consumer in consumers for role in consumer.waiting)
    return TableRows(
        shown=[
            (
                Cell(role),
                Cell(consumer.name),
                Cell(answers.waiting_fields(service, consumer, role)["behind"]),
            )
            for role, consumer in heapq.nsmallest(MAX_ROWS, waits, key=itemgetter(0))
        ],
        count=sum(len(consumer.waiting) for consumer in consumers),
    )


def _seconds(milliseconds: int) -> str:
    """Return a duration in tenths of a second, in seconds or in minutes."""
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def html(shown: Shown) -> str:
    """Return the page. Every text on it goes through `_text`."""
    group = _text(shown.group)
    member = " · ".join(f"{name} <b>{_text(value)}</b>" for name, value in shown.member)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{REFRESH_INTERVAL_S}">
<title>{escape(visible(shown.group))}: rink sidecar</title><style>{STYLE}</style></head><body>
<h1>Group {group}</h1>
<p>This sidecar: {_marked(shown.state)}</p>
{f"<p>{member}</p>" if member else ""}
{_table("Roles held here", ("role", "consumer", "token", "ends in", "state"), shown.turns)}
{_table("Waiting here", ("role", "consumer", "behind"), shown.waits)}
{_members(shown)}
{_table("Latest events", ("when", "what", "role", "consumer", "token", "why"), shown.events)}
</body></html>
"""


def _members(shown: Shown) -> str:
    if shown.status is None:
        return ""
    members = sorted(
        shown.status.members,
        key=lambda member: (member.rank is None, member.rank or 0, member.name),
    )
    rows: list[PageRow] = [
        (
            Cell(member.name + (" (this sidecar)" if member.name == shown.me else "")),
            Cell("none" if member.rank is None else str(member.rank), is_short=True),
            Cell(member.phase, "" if member.phase == "active" else "busy"),
            Cell(member.no_rank_because or member.leaving),
        )
        for member in members[:MAX_ROWS]
    ]
    table_rows = TableRows(shown=rows, count=len(members))
    return _table("Members", ("member", "rank", "phase", "why"), table_rows)


def _table(title: str, headings: tuple[str, ...], rows: TableRows) -> str:
    """Return a table with its title.

    A phone shows each row as a block, with the headings in it.
    """
    title = f"<h2>{title} <span>{rows.count:,}</span></h2>"
    if not rows.shown:
        return title + "<p>None.</p>"
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    body = "".join(_row(headings, row) for row in rows.shown)
    more = rows.count - len(rows.shown)
    return (
        f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + (f"<p>and {more:,} more</p>" if more > 0 else "")
    )  # fmt: skip


def _row(headings: Iterable[str], row: PageRow) -> str:
    cells = (
        f'<td data-of="{heading}"{_class(cell)}>{_marked(cell)}</td>'
        for heading, cell in zip(headings, row, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _class(cell: Cell) -> str:
    if not cell.text:
        return " class=none"
    return " class=short" if cell.is_short else ""


def _marked(cell: Cell) -> str:
    return f'<span class="{cell.mark}">{_text(cell.text)}</span>' if cell.mark else _text(cell.text)


def _text(text: str) -> str:
    """Return a text as HTML, in an element with its own direction.

    So right-to-left letters do not reorder the text beside the element.
    """
    return f'<bdi dir="ltr">{escape(visible(text))}</bdi>'


def visible(text: str) -> str:
    """Return a text with its invisible characters escaped.

    Some of them would change the direction of the text.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
