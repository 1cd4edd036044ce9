"""How what `rink.streams.admin` finds is shown to people, with rich. Names come from Redis: see `render`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rink.cli.render import Listing, clean, titled, when
from rink.core.own_record import some

if TYPE_CHECKING:
    from rink.streams.admin import (
        DeadLetterRow,
        DeadLetters,
        Discarded,
        Forgotten,
        Lag,
        Moved,
        Owners,
        PartitionOwner,
        Paused,
        Requeued,
        Resumed,
        Unquarantined,
    )

LONGEST = 100
"""Characters of an error or a record in a table."""


# ── lag ──────────────────────────────────────────────────────────────────────────────────────────


def show_lag(found: Sequence[Lag]) -> RenderableType:
    """Show how far each processor is behind, a line for each partition; then what needs somebody."""
    if not found:
        return Text("no processors: neither the app nor Redis has one for what was chosen")
    columns = (
        "processor",
        "partition",
        ">lag",
        "oldest",
        ">held",
        ">of",
        ">kept",
        ">bytes",
        "since",
        "keep",
    )
    made = Listing((*columns, ">processed", ">dead", "state"), titles=2)
    for one in found:
        made.add(
            clean(one.processor),
            _role(one),
            str(one.lag),
            when(one.oldest) if one.oldest else "-",
            str(one.held),
            str(one.size or "-"),
            *_kept(one),
            str(one.processed),
            str(one.dead),
            _state(one),
        )
    notes = list(_notes(found))
    return Group(made, *([Text(""), *notes] if notes else []))


def _kept(one: Lag) -> tuple[str, str, str, str]:
    """Return how long a partition keeps events that all have passed.

    "" where such events go at once.
    """
    if not one.keep:
        return "", "", "", ""
    return str(one.kept), _size(one.bytes), when(one.since) if one.since else "-", clean(one.keep)


def _size(count: int) -> str:
    """Return so many bytes with three digits, in decimal units."""
    size, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 999.5 and unit != "TB":
        size, unit = size / 1000, next(units)
    digits = 0 if size >= 99.95 or unit == "B" else 1 if size >= 9.995 else 2
    return f"{size:.{digits}f} {unit}"


def _role(
    one: Lag | DeadLetterRow | Discarded | Requeued | Unquarantined | Moved | Paused | Resumed,
) -> str:
    return clean(f"{one.stream}/{one.partition}")


def _state(one: Lag) -> Text:
    holds = (", paused" if one.paused else "") + (", holds trimming back" if one.holds_back else "")
    if one.quarantined:
        return Text(f"quarantined{holds}", "bold red")
    if one.is_sparks:
        return Text(f"query of Spark{holds}")
    if not one.declared:
        return Text(f"not in this app{holds}", "yellow")
    if not one.offset:
        return Text(f"never started{holds}", "yellow")
    if one.owned:
        return Text("owned" + holds, "yellow" if one.paused else "")
    return Text("no owner" + holds, "yellow")


def _notes(found: Sequence[Lag]) -> list[RenderableType]:
    lines = [
        ("quarantined", f"{one.processor} {one.stream}/{one.partition}: {one.quarantined}", "red")
        for one in found
        if one.quarantined
    ]
    lines += [
        ("lost", f"{one.processor} {one.stream}/{one.partition}: {one.lost} events", "red")
        for one in found
        if one.lost
    ]
    strangers = sorted({one.processor for one in found if not (one.declared or one.is_sparks)})
    what = "trimming waits for it; if it was retired: rink streams forget-group"
    lines += [("not in this app", f"{name}: {what}", "yellow") for name in strangers]
    return [titled(lines)] if lines else []


# ── owners ───────────────────────────────────────────────────────────────────────────────────────


def show_owners(found: Sequence[Owners]) -> RenderableType:
    """Show each processor's workers, and who has which partition."""
    if not found:
        return Text("no processors: neither the app nor Redis has one for what was chosen")
    parts: list[RenderableType] = []
    for number, one in enumerate(found):
        parts += [Text("")] * (number > 0) + [_head(one)]
        parts += [] if one.is_sparks else [_partitions(one)]
    return Group(*parts)


def _head(one: Owners) -> Text:
    head = Text.assemble((clean(one.processor), "bold"), f"  group {clean(one.group)} · ")
    if one.is_sparks:
        return Text.assemble(
            (clean(one.processor), "bold"), "  query of Spark: its driver reads all partitions"
        )
    if not one.declared:
        head.append("not in this app · ", "yellow")
    if not one.workers:
        return head + Text("no worker is here", "yellow")
    count = len(one.workers)
    head.append(f"version {one.version or '-'} · {count} worker" + "s" * (count != 1) + " · ")
    if one.settled is None:
        return head + Text("cannot tell whether settled", "yellow")
    return head + (Text("settled", "green") if one.settled else Text("not settled", "bold yellow"))


def _partitions(one: Owners) -> RenderableType:
    made = Listing(("partition", "owner", "standby", ">token", "state"), titles=1)
    for partition in one.partitions:
        made.add(
            clean(f"{one.stream}/{partition.partition}"),
            clean(partition.owner or "-"),
            clean(partition.standby or "-"),
            str(partition.token or "-"),
            _at_work(partition),
        )
    return made


def _at_work(one: PartitionOwner) -> Text:
    if one.quarantined:
        return Text(f"quarantined: {clean(one.quarantined)}", "red")
    if one.draining:
        return Text(f"waits for {clean(some(one.draining))} to release it", "yellow")
    if one.is_open and one.owner is None:
        return Text("its worker is gone, and has not said why", "yellow")
    if one.is_open:
        return Text("paused", "yellow") if one.paused else Text("at work")
    if one.paused:
        return Text("paused, not at work", "yellow")
    return Text("not at work", "yellow" if one.owner else "dim")


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────


def show_letters(found: DeadLetters) -> RenderableType:
    """Show dead letters, a line each; oldest first, so that the newest stands where the eye is."""
    if not found.letters:
        return Text("no dead letters")
    made = Listing(
        ("id", "processor", "partition", "given up", ">attempts", "error", "record"), titles=3
    )
    for one in found.letters:
        made.add(
            clean(one.id),
            clean(one.processor),
            _role(one),
            when(one.given_up),
            str(one.attempts),
            _short(one.error),
            _short(one.record),
        )
    hidden = found.total - len(found.letters)
    if not hidden:
        return made
    return Group(made, Text(f"… and {hidden} older ones: --last shows more", "dim"))


def show_letter(one: DeadLetterRow) -> RenderableType:
    """Show one dead letter in full."""
    facts = [
        ("dead letter", one.id),
        ("processor", one.processor),
        ("partition", f"{one.stream}/{one.partition}"),
        ("event", f"{one.event}, sent {when(one.sent) if one.sent else 'at an unknown time'}"),
        ("given up", when(one.given_up)),
        ("attempts", str(one.attempts)),
        ("error", one.error),
        ("record", one.record),
    ]
    shown = titled([(title, text, "") for title, text in facts])
    if not one.trace:
        return shown
    trace = Text("\n".join(clean(line) for line in one.trace.splitlines()))
    return Group(shown, Text(""), Padding(trace, (0, 0, 0, 2), expand=False))


def _short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


# ── what was done ────────────────────────────────────────────────────────────────────────────────


def show_requeued(found: Sequence[Requeued]) -> RenderableType:
    """Show which dead letters are events again."""
    if not found:
        return Text("no dead letters")
    made = Listing(("dead letter", "processor", "partition", "is event"), titles=3)
    for one in found:
        made.add(clean(one.letter), clean(one.processor), _role(one), clean(one.event))
    return made


def show_discarded(found: Sequence[Discarded]) -> RenderableType:
    """Show how many dead letters are gone."""
    if not found:
        return Text("no dead letters")
    made = Listing(("processor", "partition", ">dead letters removed"), titles=2)
    for one in found:
        made.add(clean(one.processor), _role(one), str(one.letters))
    return made


def show_unquarantined(found: Sequence[Unquarantined]) -> RenderableType:
    """Show which partitions are processed again, and their reasons."""
    if not found:
        return Text("no chosen partition is quarantined")
    made = Listing(
        ("processor", "partition", "goes on behind", "skipped", "was quarantined for"), titles=2
    )
    for one in found:
        made.add(
            clean(one.processor),
            _role(one),
            clean(one.offset),
            clean(one.skipped) or "-",
            clean(one.reason),
        )
    return made


def show_paused(found: Sequence[Paused]) -> RenderableType:
    """Show where a processor is paused."""
    if not found:
        return Text("nothing to pause: all chosen partitions are paused already")
    return _lags(found, "lag when paused")


def show_resumed(found: Sequence[Resumed]) -> RenderableType:
    """Show where a processor goes on."""
    if not found:
        return Text("nothing to resume: no chosen partition is paused")
    return _lags(found, "lag when resumed")


def _lags(found: Sequence[Paused | Resumed], title: str) -> RenderableType:
    made = Listing(("processor", "partition", f">{title}"), titles=2)
    for one in found:
        made.add(clean(one.processor), _role(one), str(one.lag))
    return made


def show_moved(found: Sequence[Moved]) -> RenderableType:
    """Show where offsets were and are."""
    if not found:
        return Text("no offset was moved: the processor has never started there")
    made = Listing(("processor", "partition", "offset was", "offset is"), titles=2)
    for one in found:
        made.add(clean(one.processor), _role(one), clean(one.before), clean(one.after))
    what = "events that were sent before {} may be gone: they were not kept"
    notes = [
        (_role(one), what.format(when(one.gone_before)), "yellow")
        for one in found
        if one.gone_before
    ]
    return Group(made, Text(""), titled(notes)) if notes else made


def show_forgotten(found: Sequence[Forgotten]) -> str:
    """Say what a processor kept waiting, and what stays of it."""
    if not found:
        return "nothing to forget: it is registered nowhere"
    name = found[0].processor
    waited, trimmed, letters = (
        sum(one.waited for one in found),
        sum(one.trimmed for one in found),
        sum(one.letters for one in found),
    )
    kept = f"{waited} events waited for it, {trimmed} were kept for it alone and are gone"
    where = f"{len(found)} partition" + "s" * (len(found) != 1)
    said = [f"{name} is forgotten in {where}: {kept}"]
    if letters:
        said.append(f"{letters} of its dead letters stay")
    if any(one.declared for one in found):
        said.append(
            "this app still has it: the next worker registers it anew, from where it starts"
        )
    return "; ".join(said)
