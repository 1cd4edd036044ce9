"""Draw the plots of the page as SVG text.

They show which driver ran the query when, and the results.
"""

import io
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pipeline_demo.weather import UNKNOWN, VISIBILITY, WIND

BLUE, GREY, RED, ICE, GREEN = "#2f6fab", "#d4d8dd", "#c0392b", "#7fb8d8", "#2e8b57"
AIRPORTS = {"EWR": "#2f6fab", "JFK": "#d98324", "LGA": "#5b8c5a"}
METADATA = ("Creator", "Date", "Format", "Type")  # none of it
STYLE = {
    "svg.fonttype": "none",  # the browser's letters
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}


def _as_svg(figure: Figure) -> str:
    FigureCanvasSVG(figure)
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata=dict.fromkeys(METADATA))
    return written.getvalue().partition("?>")[2].partition('.dtd">')[2]


# ── the time line ────────────────────────────────────────────────────────────────────────────


def time_line(told: dict[str, Any]) -> str:
    with mpl.rc_context(STYLE):
        names = list(told["drivers"])
        rows = {name: len(names) - 1 - at for at, name in enumerate(names)}
        figure = Figure(figsize=(11, 1.3 + 0.75 * len(names)), layout="constrained")
        axes = figure.add_subplot()
        for name, (start, end) in told["drivers"].items():
            up = told["up"].get(name, end)
            axes.barh(rows[name], up - start, left=start, height=0.16, color=GREY, alpha=0.6)
            axes.barh(rows[name], end - up, left=up, height=0.3, color=GREY)
        for one in told["held"]:
            _draw_holding(axes, one, rows[one["driver"]])
        _draw_mishaps(axes, told, rows)
        commits = [(at, rows[driver]) for _, at, driver in told["commits"]]
        axes.plot(*zip(*commits, strict=True), "o", color="white", mec="black", ms=4.5, mew=0.8)
        refused = [(at, rows[driver]) for driver, at in told["refused"]]
        if refused:
            axes.plot(*zip(*refused, strict=True), "X", color=RED, ms=10, mec="white", mew=0.8)
        axes.set_yticks(list(rows.values()), list(rows))
        axes.set_ylim(-0.75, len(names) - 0.4)
        axes.set_xlim(0, told["seconds"])
        axes.set_xlabel("seconds since the demo began")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        return _as_svg(figure)


def _draw_holding(axes: Axes, one: dict[str, Any], row: int) -> None:
    """Draw a bar; after a freeze it is only the driver's own belief."""
    until = one["silenced_at"] if one["silenced"] == "frozen" else one["end"]
    axes.barh(row, until - one["start"], left=one["start"], height=0.44, color=BLUE)
    if one["silenced"] == "frozen":
        rest = one["end"] - until
        axes.barh(row, rest, left=until, height=0.44, color="white", ec=ICE, hatch="////", lw=0.8)
    axes.text(one["start"], row + 0.26, f" token {one['token']}", fontsize=8, va="bottom")


def _draw_mishaps(axes: Axes, told: dict[str, Any], rows: dict[str, int]) -> None:
    colours = {"killed": RED, "frozen": ICE, "thawed": GREEN}
    for what, name, at in told["mishaps"]:
        colour = colours[what]
        axes.axvline(at, color=colour, lw=0.9, ls=":", zorder=0)
        axes.text(
            at, rows[name] - 0.3, f"{what} ", color=colour, fontsize=9, ha="right", va="top",
            weight="bold",
        )  # fmt: skip


# ── the result ───────────────────────────────────────────────────────────────────────────────


def mean_delay(rows: pd.DataFrame, by: Any) -> pd.Series:
    """Return the mean minutes late of the departed flights."""
    sums = rows.groupby(by)[["flights", "cancelled", "delay"]].sum()
    return sums.delay / (sums.flights - sums.cancelled)


def results(rows: pd.DataFrame) -> str:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 9), layout="constrained")
        axes = figure.subplot_mosaic(
            [["days", "days"], ["carriers", "airports"], ["wind", "visibility"]]
        )
        _draw_days(axes["days"], rows)
        _draw_carriers(axes["carriers"], rows)
        _draw_airports(axes["airports"], rows)
        for name, classes, unit in (
            ("wind", WIND, "miles an hour"),
            ("visibility", VISIBILITY, "miles"),
        ):
            _draw_classes(axes[name], rows, name, [*classes, UNKNOWN], unit)
        return _as_svg(figure)


def _draw_days(axes: Axes, rows: pd.DataFrame) -> None:
    delays = mean_delay(rows, "day")
    days = pd.to_datetime(delays.index)
    axes.bar(days, delays, width=1.0, color=BLUE)
    cancelled = rows.groupby("day")[["cancelled", "flights"]].sum()
    share = 100 * cancelled.cancelled / cancelled.flights
    axes.plot(days, -share, color=RED, lw=1)
    axes.axhline(0, color="black", lw=0.6)
    axes.margins(x=0.005)
    axes.set_title("Each day: minutes late at departure (up), per cent cancelled (down)")
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")


def _draw_carriers(axes: Axes, rows: pd.DataFrame) -> None:
    delays = mean_delay(rows, "carrier").sort_values()
    counts = rows.groupby("carrier").flights.sum()
    axes.barh(delays.index, delays, color=BLUE, height=0.7)
    for at, (carrier, delay) in enumerate(delays.items()):
        axes.text(
            max(delay, 0) + 0.2, at, f"{counts[carrier]:,}", fontsize=8, va="center", color="#666"
        )
    axes.set_title("By carrier: minutes late, number of flights")


def _draw_airports(axes: Axes, rows: pd.DataFrame) -> None:
    months = rows.assign(month=rows.day.str[:7])
    for airport, colour in AIRPORTS.items():
        delays = mean_delay(months[months.origin == airport], "month")
        # The last hours of a month by the clock are in the next one by standard time.
        names = pd.to_datetime(delays.index).strftime("%b")
        axes.plot(names, delays, "o-", color=colour, label=airport, ms=4)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, ncols=3, loc="lower left")
    axes.set_title("By airport and month: minutes late")


def _draw_classes(axes: Axes, rows: pd.DataFrame, name: str, classes: list[str], unit: str) -> None:
    delays = mean_delay(rows, name).reindex(classes)
    counts = rows.groupby(name).flights.sum()
    axes.bar(classes, delays, color=[*[BLUE] * (len(classes) - 1), GREY], width=0.7)
    for at, one in enumerate(classes):
        if one in counts:
            axes.text(
                at,
                delays[one],
                f"{counts[one]:,}",
                fontsize=8,
                ha="center",
                va="bottom",
                color="#666",
            )
    axes.set_title(f"By {name} ({unit}): minutes late")
