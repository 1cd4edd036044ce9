"""Draw a plan: the moves of roles, and the balance before and after."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rink.errors import ConfigError
from rink.plural import plural
from rink.spark.roles.plans import Load, Plan

ENDINGS = (".svg", ".png", ".pdf")

_BEFORE, _AFTER, _EVEN = "#b8c4d0", "#1f6fb4", "#c0392b"
_MAX_LABELS = 70
"""The maximum number of labels on an axis. Of more labels, every second, third … is shown."""


def check_ending(path: str) -> None:
    """Raise ConfigError unless the file's format and folder are usable."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise ConfigError(f"a picture ends in {', '.join(ENDINGS)}, not as {path!r}")
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {str(folder)!r} for the picture")


def draw(plan: Plan, path: str, title: str = "") -> None:
    """Draw a plan into a file, in the format of its ending.

    Raises:
        ConfigError: the ending is unknown, or the folder does not exist.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    check_ending(path)
    sources = _ordered({flow.source for flow in plan.flows}, plan.before.ranks)
    targets = _ordered({flow.target for flow in plan.flows}, plan.after.ranks)
    members = list(dict.fromkeys([*plan.before.ranks, *plan.after.ranks]))
    longest = max(len(members), len(sources), len(targets))
    height = min(24.0, max(4.6, 2.2 + 0.2 * longest))
    width = min(20.0, max(5.0, 2.6 + 0.3 * min(len(sources), len(targets))))
    engine = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
    figure = Figure(figsize=(width + 6.5, height), layout=engine)
    flows, bars = figure.subplots(1, 2, width_ratios=(width, 6.5))
    figure.suptitle(headline(plan, title), fontsize=12, fontweight="bold")
    _draw_flows(figure, flows, plan, sources, targets)
    _draw_balance(bars, plan, members)
    with warnings.catch_warnings():
        # A letter that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(path, format=Path(path).suffix[1:].lower(), dpi=110)


def headline(plan: Plan, title: str = "") -> str:
    """Return the main figures in a line or two."""
    roles = f"{plan.roles:,} {plural(plan.roles, 'role')}"
    moves = f"{plan.moved:,} of {roles} would move ({plan.share_moved:.1%})"
    rank_count = f"{len(plan.before.ranks)} → {len(plan.after.ranks)}"
    changes = f"{rank_count} {plural(len(plan.after.ranks), 'rank')}, {plan.after.scheme}"
    return "\n".join([moves, f"{title}: {changes}" if title else changes])


def _ordered(names: set[str | None], ranks: Sequence[str]) -> list[str | None]:
    at: dict[str | None, int] = {name: rank for rank, name in enumerate(ranks)}
    return sorted(names, key=lambda name: at.get(name, len(at)))


def _draw_flows(
    figure: Any, axes: Any, plan: Plan, sources: list[str | None], targets: list[str | None]
) -> None:
    """Draw a heat map, with the longer side downwards.

    Few members leave or join, and all other members give or take roles. So one side is much longer.
    """
    axes.set_title("Who gives roles to whom", fontsize=10, loc="left")
    if not plan.flows:
        axes.text(0.5, 0.5, "no role would move", ha="center", va="center", fontsize=12)
        axes.set_axis_off()
        return
    cells = np.full((len(sources), len(targets)), np.nan)
    at = {name: row for row, name in enumerate(sources)}
    to = {name: column for column, name in enumerate(targets)}
    for flow in plan.flows:
        cells[at[flow.source], to[flow.target]] = flow.roles
    sides = [("from", sources), ("to", targets)]
    if len(targets) > len(sources):
        cells = cells.T
        sides.reverse()
    (down, rows), (across, columns) = sides
    image = axes.imshow(cells, cmap="Blues", norm=_norm(cells), aspect="auto")
    _label(axes.xaxis, [_name(name) for name in columns])
    _label(axes.yaxis, [_name(name) for name in rows])
    axes.tick_params(axis="x", rotation=0 if _fit(columns) else 90)
    axes.set_xlabel(across)
    axes.set_ylabel(down)
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    axes.set_facecolor("#f2f2f2")
    if len(columns) <= 8 and len(rows) <= _MAX_LABELS:
        _write(axes, cells, image, 8 if len(rows) <= 24 else 7)
    else:
        bar = figure.colorbar(image, ax=axes, pad=0.02, shrink=0.8)
        bar.ax.yaxis.set_major_formatter(lambda value, _: short(value))
        bar.ax.yaxis.set_minor_formatter(lambda *_: "")
        bar.set_label("roles")


def _norm(cells: Any) -> Any:
    """Return the scale of colours, which is colourless at 0 roles.

    It is logarithmic if the largest cell would make all other cells pale.
    """
    from matplotlib.colors import LogNorm, Normalize

    least, most = float(np.nanmin(cells)), float(np.nanmax(cells))
    return LogNorm(least / 3, most) if most > 8 * least else Normalize(0, most)


def _write(axes: Any, cells: Any, image: Any, size: int) -> None:
    for row, column in np.argwhere(~np.isnan(cells)):
        roles = cells[row, column]
        colour = "white" if image.norm(roles) > 0.6 else "black"
        axes.text(column, row, short(roles), ha="center", va="center", fontsize=size, color=colour)


def _draw_balance(axes: Any, plan: Plan, members: list[str]) -> None:
    axes.set_title("Roles of each member", fontsize=10, loc="left")
    before = {load.member: load for load in plan.balance_before}
    after = {load.member: load for load in plan.balance_after}
    place = np.arange(len(members))
    for loads, shift, colour, name in (
        (before, -0.2, _BEFORE, "before"),
        (after, 0.2, _AFTER, "after"),
    ):
        roles = [loads[member].roles if member in loads else 0 for member in members]
        label = f"{name}: {_spread(list(loads.values()))}"
        axes.barh(place + shift, roles, height=0.38, color=colour, label=label)
    for loads, style in ((before, ":"), (after, "--")):
        if loads and plan.roles:
            axes.axvline(plan.roles / len(loads), color=_EVEN, linestyle=style, linewidth=1)
    axes.plot([], [], color=_EVEN, linestyle=":", linewidth=1, label="an even share before")
    axes.plot([], [], color=_EVEN, linestyle="--", linewidth=1, label="an even share after")
    _label(axes.yaxis, [_name(member) for member in members])
    axes.set_ylim(len(members) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_xlabel("roles")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.6 / axes.figure.get_figheight()),
        ncols=2, fontsize=8, frameon=False,
    )  # fmt: skip


def _spread(loads: Sequence[Load]) -> str:
    """Return the least and the greatest load, in even shares."""
    ratios = [load.ratio for load in loads]
    return f"{min(ratios):.2f} to {max(ratios):.2f} of even" if ratios else "nobody"


def _label(axis: Any, names: list[str]) -> None:
    step = -(-len(names) // _MAX_LABELS)
    axis.set_ticks(np.arange(0, len(names), step), names[::step])
    axis.set_tick_params(labelsize=9 if len(names) <= 24 else 7)


def _fit(names: list[str | None]) -> bool:
    return sum(len(_name(name)) + 2 for name in names) < 44


def _name(name: str | None) -> str:
    """Return a name for a label: short, printable, and no formula."""
    text = "nobody" if name is None else name
    text = text if text.isprintable() else text.encode("unicode_escape").decode()
    text = text if len(text) <= 24 else text[:11] + "…" + text[-12:]
    return text.replace("$", r"\$")


def short(number: float) -> str:
    """Return a count with about three digits: 950, 12.3k, 4.56M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size * 0.9995:
            return f"{number / size:.3g}{unit}"
    return f"{number:g}"
