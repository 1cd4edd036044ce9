"""Show the results of `rink.streams.admin` to people, with rich.

Names come from Redis, where any client may have written them: see `render`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rink.cli.render import Listing, clean, titled, when
from rink.core.wording import some
from rink.plural import plural

if TYPE_CHECKING:
    from rink.streams import admin

MAX_TEXT_SHOWN = 100
"""The maximum number of characters of an error or a record in a table."""


def show_lag(lags: Sequence[admin.Lag]) -> RenderableType:
    """Show each processor's lag by partition, then the problems to solve."""
    if not lags:
        return Text("no processors: neither the app nor Redis has a chosen one")
    backlog = (">lag", "oldest", ">held", ">of", ">kept", ">bytes", "since", "keep")
    columns = ("processor", "partition", *backlog, ">processed", ">dead", "state")
    listing = Listing(columns, titles=2)
    for lag in lags:
        listing.add(
            clean(lag.processor),
            _role(lag),
            str(lag.lag),
            when(lag.oldest) if lag.oldest else "-",
            str(lag.held),
            str(lag.size or "-"),
            *_retention_cells(lag),
            str(lag.processed),
            str(lag.dead),
            _processor_state(lag),
        )
    notes = list(_notes(lags))
    return Group(listing, *([Text(""), *notes] if notes else []))


def _retention_cells(lag: admin.Lag) -> tuple[str, str, str, str]:
    """Return the four cells about events that a partition keeps on purpose.

    The cells are empty if events are trimmed once all processors have passed them.
    """
    if not lag.keep:
        return "", "", "", ""
    return (
        str(lag.kept),
        _bytes_text(lag.bytes),
        when(lag.since) if lag.since else "-",
        clean(lag.keep),
    )


def _bytes_text(count: int) -> str:
    """Return a number of bytes with three digits, in decimal units."""
    size, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 999.5 and unit != "TB":
        size, unit = size / 1000, next(units)
    digits = 0 if size >= 99.95 or unit == "B" else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {unit}"


def _role(row: Any) -> str:
    return clean(f"{row.stream}/{row.partition}")


def _processor_state(lag: admin.Lag) -> Text:
    holds = (", paused" if lag.paused else "") + (", holds trimming back" if lag.holds_back else "")
    if lag.quarantined:
        return Text(f"quarantined{holds}", "bold red")
    if lag.is_sparks:
        return Text(f"query of Spark{holds}")
    if not lag.declared:
        return Text(f"not in this app{holds}", "yellow")
    if not lag.offset:
        return Text(f"never started{holds}", "yellow")
    if lag.owned:
        return Text("owned" + holds, "yellow" if lag.paused else "")
    return Text("no owner" + holds, "yellow")


def _notes(lags: Sequence[admin.Lag]) -> list[RenderableType]:
    places = [(f"{lag.processor} {lag.stream}/{lag.partition}", lag) for lag in lags]
    lines = [
        ("quarantined", f"{place}: {lag.quarantined}", "red")
        for place, lag in places
        if lag.quarantined
    ]
    lines += [
        ("lost", f"{place}: {lag.lost} {plural(lag.lost, 'event')}", "red")
        for place, lag in places
        if lag.lost
    ]
    strangers = sorted({lag.processor for lag in lags if not (lag.declared or lag.is_sparks)})
    what = "trimming waits for this processor. If it was retired, run rink streams forget-group"
    lines += [("not in this app", f"{name}: {what}", "yellow") for name in strangers]
    return [titled(lines)] if lines else []


def show_owners(owners: Sequence[admin.Owners]) -> RenderableType:
    """Show each processor's workers, and the owner of each partition."""
    if not owners:
        return Text("no processors: neither the app nor Redis has a chosen one")
    parts: list[RenderableType] = []
    for number, processor in enumerate(owners):
        parts += [Text("")] * (number > 0) + [_head(processor)]
        parts += [] if processor.is_sparks else [_partitions(processor)]
    return Group(*parts)


def _head(owners: admin.Owners) -> Text:
    head = Text.assemble((clean(owners.processor), "bold"), f"  group {clean(owners.group)} · ")
    if owners.is_sparks:
        return Text.assemble(
            (clean(owners.processor), "bold"), "  query of Spark: its driver reads all partitions"
        )
    if not owners.declared:
        head.append("not in this app · ", "yellow")
    if not owners.workers:
        return head + Text("no workers", "yellow")
    count = len(owners.workers)
    head.append(f"version {owners.version or '-'} · {count} {plural(count, 'worker')} · ")
    if owners.settled is None:
        return head + Text("cannot tell whether settled", "yellow")
    return head + (
        Text("settled", "green") if owners.settled else Text("not settled", "bold yellow")
    )


def _partitions(owners: admin.Owners) -> RenderableType:
    listing = Listing(("partition", "owner", "standby", ">token", "state"), titles=1)
    for partition in owners.partitions:
        listing.add(
            clean(f"{owners.stream}/{partition.partition}"),
            clean(partition.owner or "-"),
            clean(partition.standby or "-"),
            str(partition.token or "-"),
            _at_work(partition),
        )
    return listing


def _at_work(partition: admin.PartitionOwner) -> Text:
    if partition.quarantined:
        return Text(f"quarantined: {clean(partition.quarantined)}", "red")
    if partition.draining:
        return Text(f"waits for {clean(some(partition.draining))} to release it", "yellow")
    if partition.is_open and partition.owner is None:
        return Text("the worker is gone and did not close the partition", "yellow")
    if partition.is_open:
        return Text("paused", "yellow") if partition.paused else Text("at work")
    if partition.paused:
        return Text("paused, not at work", "yellow")
    return Text("not at work", "yellow" if partition.owner else "dim")


def show_letters(letters: admin.DeadLetters) -> RenderableType:
    """Show dead letters, one a line, with the newest next to the prompt."""
    if not letters.letters:
        return Text("no dead letters")
    listing = Listing(
        ("id", "processor", "partition", "given up", ">attempts", "error", "record"), titles=3
    )
    for letter in letters.letters:
        listing.add(
            clean(letter.id),
            clean(letter.processor),
            _role(letter),
            when(letter.given_up),
            str(letter.attempts),
            _short(letter.error),
            _short(letter.record),
        )
    hidden = letters.total - len(letters.letters)
    if not hidden:
        return listing
    return Group(
        listing, Text(f"… and {hidden} older {plural(hidden, 'letter')}: --last shows more", "dim")
    )


def show_letter(letter: admin.DeadLetterRow) -> RenderableType:
    """Show one dead letter in full."""
    sent = when(letter.sent) if letter.sent else "at an unknown time"
    facts = [
        ("dead letter", letter.id),
        ("processor", letter.processor),
        ("partition", f"{letter.stream}/{letter.partition}"),
        ("event", f"{letter.event}, sent {sent}"),
        ("given up", when(letter.given_up)),
        ("attempts", str(letter.attempts)),
        ("error", letter.error),
        ("record", letter.record),
    ]
    shown = titled([(title, text, "") for title, text in facts])
    if not letter.trace:
        return shown
    trace = Text("\n".join(clean(line) for line in letter.trace.splitlines()))
    return Group(shown, Text(""), Padding(trace, (0, 0, 0, 2), expand=False))


def _short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= MAX_TEXT_SHOWN else text[:MAX_TEXT_SHOWN] + "…"


def show_requeued(rows: Sequence[admin.Requeued]) -> RenderableType:
    """Show the requeued dead letters and their new events."""
    if not rows:
        return Text("no dead letters")
    listing = Listing(("dead letter", "processor", "partition", "is event"), titles=3)
    for row in rows:
        listing.add(clean(row.letter), clean(row.processor), _role(row), clean(row.event))
    return listing


def show_discarded(rows: Sequence[admin.Discarded]) -> RenderableType:
    """Show the number of removed dead letters."""
    return _changed(rows, {">dead letters removed": "letters"}, "no dead letters")


def show_unquarantined(rows: Sequence[admin.Unquarantined]) -> RenderableType:
    """Show the partitions that are processed again."""
    columns = {"continues after": "offset", "skipped": "skipped", "was quarantined for": "reason"}
    return _changed(rows, columns, "no chosen partition is quarantined")


def show_paused(rows: Sequence[admin.Paused]) -> RenderableType:
    """Show the partitions in which a processor is paused."""
    nothing = "nothing to pause: all chosen partitions are paused already"
    return _changed(rows, {">lag when paused": "lag"}, nothing)


def show_resumed(rows: Sequence[admin.Resumed]) -> RenderableType:
    """Show the partitions in which a processor is resumed."""
    nothing = "nothing to resume: no chosen partition is paused"
    return _changed(rows, {">lag when resumed": "lag"}, nothing)


def show_moved(rows: Sequence[admin.Moved]) -> RenderableType:
    """Show the offsets before and after a move."""
    columns = {"offset was": "before", "offset is": "after"}
    listing = _changed(rows, columns, "no offset was moved: the processor has never started there")
    what = "events that were sent before {} may be gone: they were not kept"
    notes = [
        (_role(row), what.format(when(row.gone_before)), "yellow")
        for row in rows
        if row.gone_before
    ]
    return Group(listing, Text(""), titled(notes)) if notes else listing


def _changed(
    rows: Sequence[
        admin.Discarded | admin.Unquarantined | admin.Paused | admin.Resumed | admin.Moved
    ],
    columns: Mapping[str, str],
    nothing: str,
) -> RenderableType:
    """Show the changed partitions, or `nothing` if there are none.

    `columns` maps each further column to the attribute that it shows.
    """
    if not rows:
        return Text(nothing)
    listing = Listing(("processor", "partition", *columns), titles=2)
    for row in rows:
        facts = (clean(str(getattr(row, name))) or "-" for name in columns.values())
        listing.add(clean(row.processor), _role(row), *facts)
    return listing


def show_forgotten(rows: Sequence[admin.Forgotten]) -> str:
    """Return a text about a forgotten processor, and its remaining data."""
    if not rows:
        return "nothing to forget: it is registered nowhere"
    name = rows[0].processor
    waited, trimmed = sum(row.waited for row in rows), sum(row.trimmed for row in rows)
    kept = f"events it had not committed: {waited}; kept only for it, and now removed: {trimmed}"
    parts = [f"{name} is forgotten in {len(rows)} {plural(len(rows), 'partition')}: {kept}"]
    if letters := sum(row.letters for row in rows):
        parts.append(f"its dead letters stay: {letters}")
    if any(row.declared for row in rows):
        parts.append(
            f"this app still has {name}: the next worker registers it again, at its configured "
            "start"
        )
    return "; ".join(parts)
