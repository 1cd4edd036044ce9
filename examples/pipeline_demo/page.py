"""Write the report as one HTML file that needs no other file."""

from html import escape
from pathlib import Path

from pipeline_demo import plots
from pipeline_demo.report import CAUSES, TAKES, TITLES, Evidence, Report

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222 }
body { max-width: 1120px; margin: 1.5em auto; padding: 0 1em }
h1 { font-size: 1.5em; margin-bottom: .2em } h2 { font-size: 1.15em; margin: 1.6em 0 .3em }
svg { width: 100%; height: auto } p { max-width: 62em; margin: .4em 0 }
table { border-collapse: collapse; margin: .4em 2.5em .4em 0 }
table { display: inline-table; vertical-align: top; font-size: .93em }
th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #e3e3e3 }
th { font-weight: 600; color: #555 }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
.good { color: #1f7a43; font-weight: 600 } .bad { color: #b02a1c; font-weight: 600 }
"""
LEGEND = """Each row is a driver: grey while it runs (thin until its Spark is up), blue while it
holds the role <code>delays</code> and so runs the query, hatched while a frozen one still believes
that it does. A white dot is a batch that Spark has committed, a red cross a write that a guard has
refused."""


def write(path: Path, report: Report, seen: Evidence) -> None:
    rows = seen.rows if len(seen.rows) else seen.expected
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_page(report, plots.time_line(report["timeline"]), plots.results(rows)))


def _page(report: Report, time_line: str, results: str) -> str:
    flights = report["totals"]["flights"]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Flights on Spark</title>
<style>{STYLE}</style></head><body>
<h1>Flights on Spark, by drivers that were killed and frozen</h1>
<p>{flights["plain"]:,} flights in {report["batches"]} batches, {report["seconds"]:.0f} seconds.
{_verdict(report)}</p>
<h2>Who ran the query when</h2>
<p>{LEGEND}</p>
{time_line}
<h2>What was checked</h2>
{_faults(report)}{_totals(report)}
<h2>From one driver's end to the next one's first batch</h2>
{_takeovers(report)}
<p>The lease (TTL) is {report["ttl"]:g} s. {report["known"]} parts of batches came again and were
known to the guards; stale writes refused: {len(report["refused"])}{_first(report["refused"])}</p>
<h2>What came out: departures from New York in 2013</h2>
{results}
</body></html>
"""


def _verdict(report: Report) -> str:
    if report["ok"]:
        return _marked(
            "Equal to one plain pass: nothing lost, nothing doubled, nothing stale.", True
        )
    return _marked("Not as promised; see the table.", False)


def _first(refused: list[str]) -> str:
    return f", the first: <em>{escape(refused[0])}</em>" if refused else "."


def _faults(report: Report) -> str:
    rows = [
        (escape(name), _marked(f"{found['count']:,}", not found["count"]))
        for name, found in report["faults"].items()
    ]
    return _table(("must be none", "found"), rows)


def _totals(report: Report) -> str:
    rows = []
    for name, title in TITLES.items():
        got = report["totals"][name]
        is_equal = len(set(got.values())) == 1
        rows.append((title, *(_marked(f"{one:,}", is_equal) for one in got.values())))
    return _table(("totals", "in Redis", "in Parquet", "in one plain pass"), rows)


def _takeovers(report: Report) -> str:
    rows = [
        (
            CAUSES[one["cause"]],
            *("" if one[name] is None else f"{one[name]:.2f} s" for name in TAKES),
        )
        for one in report["takeovers"]
    ]
    headings = (
        "until the role is granted",
        "Spark starts the query",
        "the first batch",
        "all",
        "beside: TTL and a cold start",
    )
    return _table(("the driver before was …", *headings), rows)


def _marked(text: str, good: bool) -> str:
    return f'<span class="{"good" if good else "bad"}">{text}</span>'


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{one}</th>" for one in headings)
    body = "".join("<tr>" + "".join(f"<td>{one}</td>" for one in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
