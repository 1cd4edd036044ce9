"""Measure a checkout: its sizes, comments, findings and pages."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from style import pages
from style.findings import CHECKED, MEASURED, Checkout, find, size_of
from style.sources import Source

NAMED = 5
"""The largest files and functions of the library that the table names."""

RULES_OF_NAMES = ("class-name", "file-name", "variable-name")

Measures = dict[str, Any]


def measure(checkout: Checkout) -> Measures:
    """Return all measures, as JSON has them."""
    rules = [*CHECKED, *MEASURED]
    counts = {rule: Counter(finding.room for finding in find(checkout, rule)) for rule in rules}
    of_rooms = [rule for rule in rules if rule not in (*RULES_OF_NAMES, "sentence-length")]
    return {
        "rooms": {
            room: {
                **_lines(sources),
                **{rule: counts[rule][room] for rule in of_rooms},
                **_sizes(sources),
            }
            for room, sources in checkout.rooms.items()
            if sources
        },
        "names": {rule: counts[rule].total() for rule in RULES_OF_NAMES},
        "pages": {
            str(path.relative_to(checkout.root)): _page(path.read_text(encoding="utf-8"))
            for path in pages.user_pages(checkout.root)
        },
        "largest": {
            "files": _largest((len(source.lines), str(source.path)) for source in checkout.library),
            "functions": _largest(
                (size_of(function), f"{source.path}:{function.lineno} {function.name}")
                for source in checkout.library
                for function in source.functions
            ),
        },
    }


def _lines(sources: Sequence[Source]) -> Measures:
    code = sum(source.code_lines for source in sources)
    comments = Counter(alone for source in sources for alone in source.comments.values())
    return {
        "files": len(sources),
        "lines": sum(len(source.lines) for source in sources),
        "code lines": code,
        "docstrings": sum(len(source.docstrings) for source in sources),
        "comment lines": comments[True],
        "comments beside code": comments[False],
        "comment lines per code line": round(comments[True] / max(code, 1), 4),
        "comments per code line": round(comments.total() / max(code, 1), 4),
    }


def _sizes(sources: Sequence[Source]) -> Measures:
    files = [len(source.lines) for source in sources]
    functions = [size_of(function) for source in sources for function in source.functions]
    return {
        "functions": len(functions),
        "lines of a file": _spread(files),
        "lines of a function": _spread(functions),
    }


def _spread(sizes: list[int]) -> str:
    """Return median, 90th percentile and maximum."""
    if not sizes:
        return "-"
    ordered = sorted(sizes)
    p90 = ordered[int(len(ordered) * 0.9)]
    return f"{statistics.median(ordered):.0f} / {p90} / {ordered[-1]}"


def _largest(sizes: Iterable[tuple[int, str]]) -> dict[str, int]:
    return {name: size for size, name in sorted(sizes, reverse=True)[:NAMED]}


def _page(markdown: str) -> Measures:
    return {
        "words": pages.words(markdown),
        "words with code": len(markdown.split()),
        "sentences": sum(1 for _ in pages.sentences(markdown)),
        "long sentences": len(pages.long_sentences(markdown)),
    }


LABELS = {
    "files": "Python files",
    "docstring-length": "docstring first lines > 72 characters",
    "docstring-opening": "docstrings that begin with a word of rule 2",
    "line-length": "lines > 100 columns",
    "test-name": "test names > 70 characters, or with an article",
    "complexity-comment": "functions above complexity 10 without a comment",
    "file-size": "files > 400 lines",
    "function-size": "functions > 50 lines",
    "lines of a file": "lines of a file: median / 90 % / maximum",
    "lines of a function": "lines of a function: median / 90 % / maximum",
    "class-name": "names of classes and type aliases used twice in rink/",
    "file-name": "file names used twice in rink/",
    "variable-name": "variables in rink/ and checks/ that are no nouns",
}


def markdown(measures: Measures) -> str:
    """Return the measures as tables in Markdown."""
    rooms = measures["rooms"]
    rows = [
        [LABELS.get(name, name), *(str(room[name]) for room in rooms.values())]
        for name in next(iter(rooms.values()))
    ]
    names = [[LABELS[name], str(count)] for name, count in measures["names"].items()]
    columns = ["words", "words with code", "sentences", "long sentences"]
    by_page = [
        [path, *(str(page[column]) for column in columns)]
        for path, page in measures["pages"].items()
    ]
    totals = [str(sum(page[column] for page in measures["pages"].values())) for column in columns]
    largest = [
        [str(size), f"`{name}`"] for sizes in measures["largest"].values()
        for name, size in sizes.items()
    ]  # fmt: skip
    return "\n\n".join(
        [
            table(["", *(f"`{room}`" for room in rooms)], rows),
            table(["", "number"], names),
            table(["largest of the library", ""], [[name, size] for size, name in largest]),
            table(
                ["page for users", *columns[:-1], f"sentences > {pages.MAX_WORDS} words"],
                [*by_page, ["all", *totals]],
            ),
        ]
    )


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return one table in Markdown; all columns but the first are numbers."""
    rules = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rules, *rows])
