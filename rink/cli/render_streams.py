"""How what `rink.streams.admin` finds is shown to people, with rich. Names come from Redis: see `render`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from rink.cli.render import clean, table, when

if TYPE_CHECKING:
    from rink.streams.admin import Lag


def show_lag(found: Sequence[Lag]) -> RenderableType:
    """Show how far each processor is behind, a line for each partition; then what needs somebody."""
    made = table(
        "processor",
        "stream",
        ">partition",
        ">lag",
        "oldest",
        ">held",
        ">processed",
        ">dead",
        "state",
    )
    for one in found:
        made.add_row(
            clean(one.processor),
            clean(one.stream),
            str(one.partition),
            f"{one.lag}",
            when(one.oldest) if one.oldest else "-",
            f"{one.length}/{one.size}",
            str(one.processed),
            str(one.dead),
            _state(one),
        )
    return Group(made, *_notes(found))


def _state(one: Lag) -> Text:
    if one.parked:
        return Text("parked", "bold red")
    parts = ["owned" if one.owned else "no owner"]
    style = "" if one.owned else "yellow"
    if not one.declared:
        parts, style = ["not in this app"], "yellow"
    if one.holds_back:
        parts.append("holds trimming back")
    return Text(", ".join(parts), style)


def _notes(found: Sequence[Lag]) -> list[Text]:
    notes = [
        Text(
            f"parked  {clean(one.stream)}/{one.partition} of {clean(one.processor)}: {clean(one.parked)}",
            "red",
        )
        for one in found
        if one.parked
    ]
    strangers = sorted({one.processor for one in found if not one.declared})
    notes += [
        Text(
            f"not in this app  {clean(name)}: trimming waits for it; `rink streams forget-group` lets go of it",
            "yellow",
        )
        for name in strangers
    ]
    return [Text(""), *notes] if notes else []
