"""Find what breaks a rule of language.

Each finding says where it is and what to do.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import attrs

from style import pages
from style.sources import LIBRARY, ROOMS, Function, Source, files, shebang, sources

MAX_DOCSTRING = 72
MAX_COLUMNS = 100
MAX_TEST_NAME = 70
ARTICLES = ("test_a_", "test_an_", "test_the_")
MAX_COMPLEXITY = 10
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
TAB = 4

OPENINGS = {
    "What", "Who", "Whose", "Whoever", "So", "Those", "As", "Of", "Have", "Tell", "It",
}  # fmt: skip

NO_NOUNS = {"found", "one", "given", "told", "asked"}
"""The words that point at a value without its noun."""

CLASSES_OF_BOTH_FACES = {
    "Assignment": "the partitions of this member",
    "PartitionedConsumer": "a member of a group that shares partitions",
    "Rink": "a member of a group",
    "Role": "a handle of a held role",
    "RoleSet": "the held roles among several",
    "Session": "a connection to etcd",
}
"""The classes that `rink` has for threads and `rink.aio` for asyncio, each with its one meaning."""

FILES_OF_ONE_MEANING = {
    "__init__.py": "what the package exports",
    "__main__.py": "what `python -m` runs",
    "aio.py": "the asyncio face of the package",
    "errors.py": "the exceptions of the package",
    "keys.py": "the keys of the package in its store",
    "metrics.py": "what the package shows to Prometheus",
    "client.py": "an etcd client",
    "clock.py": "the source of time",
    "cluster.py": "several servers of a test that belong together",
    "codec.py": "values to bytes and back",
    "effects.py": "what a pure step wants done",
    "error_map.py": "errors of a library as errors of Rink",
    "local.py": "test servers on this machine",
    "membership.py": "join a group, and leave it",
    "node.py": "one server of a test",
    "offsets.py": "offsets of a stream's partitions",
    "options.py": "options that users give",
    "scripts.py": "load Lua scripts",
    "settings.py": "the settings of the package, checked",
    "start.py": "find and start the binary of a test server",
    "values.py": "plain values of the package",
    "begin.lua": "begin a query, or a batch of one",
    "common.lua": "the functions that the scripts of the package share",
    "open.lua": "raise the fence before the first write",
}
"""The names that several files of `rink/` may have, each with its one meaning."""

CODE_SUFFIXES = {".py", ".lua", ".sh", ".yaml", ".yml"}
CODE_LANGUAGES = {"python", "sh", "bash", "yaml", "lua"}


@attrs.frozen(order=True)
class Finding:
    """Describe one place that breaks a rule.

    Attributes:
        path: the file, relative to the checkout.
        line: its line.
        rule: the rule's name.
        advice: what is wrong, and what to do.
    """

    path: str
    line: int
    rule: str
    advice: str

    @property
    def room(self) -> str:
        """Return the top folder, or the file if it is in none."""
        return Path(self.path).parts[0]

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.advice}"


class Checkout:
    """Hold the files of one checkout, read once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def rooms(self) -> dict[str, list[Source]]:
        """Return the Python files of each room."""
        return {room: sources(self.root, room) for room in ROOMS}

    @cached_property
    def all(self) -> list[Source]:
        """Return the Python files of all rooms."""
        return [source for room in self.rooms.values() for source in room]

    @cached_property
    def library(self) -> list[Source]:
        """Return the Python files that are installed."""
        return [source for room in LIBRARY for source in self.rooms[room]]

    @cached_property
    def complex_functions(self) -> list[tuple[str, int]]:
        """Return path and line of each function that ruff calls too complex."""
        paths = [self.root / source.path for source in self.all]
        if not paths:
            return []
        limit = f"lint.mccabe.max-complexity={MAX_COMPLEXITY}"
        command = [
            sys.executable, "-m", "ruff", "check", "--isolated", "--ignore-noqa", "--no-cache",
            "--select", "C901", "--config", limit, "--output-format", "json", *map(str, paths),
        ]  # fmt: skip
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if not done.stdout:  # it prints a list of JSON, also of nothing
            raise RuntimeError(f"ruff failed: {done.stderr}; run .venv/bin/python .ci/style")
        return [
            (str(Path(violation["filename"]).relative_to(self.root)), violation["location"]["row"])
            for violation in json.loads(done.stdout)
        ]


# ── docstrings ───────────────────────────────────────────────────────────────────────────────────


def docstring_length(checkout: Checkout) -> Iterator[Finding]:
    """Find first lines of docstrings that are too long."""
    for source in checkout.all:
        for docstring in source.docstrings:
            if len(docstring.text) > MAX_DOCSTRING:
                yield Finding(
                    str(source.path),
                    docstring.line,
                    "docstring-length",
                    f"the first line has {len(docstring.text)} characters; "
                    f"keep verb and object within {MAX_DOCSTRING}, and move the rest below",
                )


def docstring_opening(checkout: Checkout) -> Iterator[Finding]:
    """Find docstrings that begin with a word that hides the verb."""
    for source in checkout.all:
        for docstring in (*source.docstrings, *source.attribute_docstrings):
            opening = re.match(r"\w*", docstring.text)
            if opening and opening[0] in OPENINGS:
                yield Finding(
                    str(source.path),
                    docstring.line,
                    "docstring-opening",
                    f'begins with "{opening[0]}"; begin with a verb and its object ("Return …"), '
                    "or with the noun of a value",
                )


# ── names ────────────────────────────────────────────────────────────────────────────────────────


def class_names(checkout: Checkout) -> Iterator[Finding]:
    """Find classes and type aliases of one name in modules of `rink/`."""
    places = defaultdict(list)
    for source in checkout.rooms["rink"]:
        for name, line in source.types:
            places[name].append((str(source.path), line))
    yield from _repeated(places, "class-name", "class", CLASSES_OF_BOTH_FACES)


def file_names(checkout: Checkout) -> Iterator[Finding]:
    """Find file names that several folders of `rink/` have."""
    places = defaultdict(list)
    for path in files(checkout.root, "rink"):
        if path.suffix in (".py", ".lua"):
            places[path.name].append((str(path.relative_to(checkout.root)), 1))
    yield from _repeated(places, "file-name", "the name", FILES_OF_ONE_MEANING)


def _repeated(
    places: dict[str, list[tuple[str, int]]], rule: str, noun: str, allowed: dict[str, str]
) -> Iterator[Finding]:
    for name, where in places.items():
        if len(where) > 1 and name not in allowed:
            (path, line), *others = where
            also = ", ".join(f"{other}:{row}" for other, row in others)
            advice = f"{noun} {name} is also in {also}; rename all but one"
            yield Finding(path, line, rule, advice)


def variable_names(checkout: Checkout) -> Iterator[Finding]:
    """Find variables that are no nouns in `rink/` and `checks/`."""
    for source in (*checkout.rooms["rink"], *checkout.rooms["checks"]):
        for name, line in source.variables:
            if name in NO_NOUNS:
                advice = f"{name} only points at a value; name the noun"
                yield Finding(str(source.path), line, "variable-name", advice)


def test_names(checkout: Checkout) -> Iterator[Finding]:
    """Find names of tests that are too long, or that begin with an article."""
    for source in checkout.all:
        for function in source.functions:
            name = function.name
            if name.startswith("test_") and len(name) > MAX_TEST_NAME:
                advice = (
                    f"{name} has {len(name)} characters; name unit, condition and result "
                    f"within {MAX_TEST_NAME}, and move the sentence into the docstring"
                )
            elif name.startswith(ARTICLES):
                advice = f"{name} begins with an article; begin with the unit"
            else:
                continue
            yield Finding(str(source.path), function.lineno, "test-name", advice)


# ── lines ────────────────────────────────────────────────────────────────────────────────────────


def line_length(checkout: Checkout) -> Iterator[Finding]:
    """Find lines of code that are too long, also in the code blocks of pages."""
    for path, number, line in _code_lines(checkout.root):
        columns = len(line.rstrip().expandtabs(TAB))
        if columns > MAX_COLUMNS and _can_be_broken(line):
            yield Finding(
                str(path.relative_to(checkout.root)),
                number,
                "line-length",
                f"has {columns} columns; break it at {MAX_COLUMNS}",
            )


def _code_lines(root: Path) -> Iterator[tuple[Path, int, str]]:
    for path in [root / "Makefile", *(path for room in ROOMS for path in files(root, room))]:
        if path.suffix in CODE_SUFFIXES or path.name == "Makefile" or shebang(path):
            text = path.read_text(encoding="utf-8")
            yield from ((path, number, line) for number, line in enumerate(text.splitlines(), 1))
    for path in [*sorted(root.glob("*.md")), *_pages(root)]:
        yield from ((path, number, line) for number, line in code_blocks(path.read_text()))


def _pages(root: Path) -> list[Path]:
    return [path for room in ROOMS for path in files(root, room) if path.suffix == ".md"]


def code_blocks(markdown: str) -> Iterator[tuple[int, str]]:
    """Yield each line of the code blocks that are checked, with its number."""
    language = ""
    was_code = False
    for number, line, is_code in pages.fences(markdown):
        if is_code and not was_code:
            language = line.strip().strip("`~").strip()
        elif is_code and language in CODE_LANGUAGES:
            yield number, line
        was_code = is_code


def _can_be_broken(line: str) -> bool:
    """Return whether a line has two words; a URL has to stay whole."""
    return len(line.strip().lstrip("#/- ").split()) > 1


# ── comments ─────────────────────────────────────────────────────────────────────────────────────


def complexity_comment(checkout: Checkout) -> Iterator[Finding]:
    """Find complex functions without a comment line in or above them."""
    by_path = {str(source.path): source for source in checkout.all}
    for path, line in checkout.complex_functions:
        source = by_path[path]
        (function,) = (node for node in source.functions if node.lineno == line)
        if not has_comment(source, function):
            yield Finding(
                path,
                line,
                "complexity-comment",
                f"{function.name} is above complexity {MAX_COMPLEXITY}; write a comment that "
                "states the invariant and why it holds, or split the function",
            )


def has_comment(source: Source, function: Function) -> bool:
    """Return whether a function has a comment line in it or directly above it."""
    begin = min([function.lineno, *(node.lineno for node in function.decorator_list)])
    lines = range(begin - 1, (function.end_lineno or function.lineno) + 1)
    return any(source.comments.get(line, False) for line in lines)


# ── sizes and pages: measured, not checked ───────────────────────────────────────────────────────


def file_size(checkout: Checkout) -> Iterator[Finding]:
    """Find files above the size that we mean to keep."""
    for source in checkout.all:
        if (count := len(source.lines)) > MAX_FILE_LINES:
            yield Finding(str(source.path), 1, "file-size", f"has {count} lines; split it")


def function_size(checkout: Checkout) -> Iterator[Finding]:
    """Find functions above the size that we mean to keep."""
    for source in checkout.all:
        for function in source.functions:
            if (count := size_of(function)) > MAX_FUNCTION_LINES:
                advice = f"{function.name} has {count} lines; split it"
                yield Finding(str(source.path), function.lineno, "function-size", advice)


def size_of(function: Function) -> int:
    """Return the lines of a function from its `def` on, nested functions too."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def sentence_length(checkout: Checkout) -> Iterator[Finding]:
    """Find long sentences in the pages for users."""
    for path in pages.user_pages(checkout.root):
        for sentence in pages.long_sentences(path.read_text(encoding="utf-8")):
            yield Finding(
                str(path.relative_to(checkout.root)),
                sentence.line,
                "sentence-length",
                f'"{sentence.opening} …" has {sentence.words} words; split it at {pages.MAX_WORDS}',
            )


Finder = Callable[[Checkout], Iterator[Finding]]
CHECKED: dict[str, Finder] = {
    "docstring-length": docstring_length,
    "docstring-opening": docstring_opening,
    "class-name": class_names,
    "file-name": file_names,
    "variable-name": variable_names,
    "line-length": line_length,
    "test-name": test_names,
    "complexity-comment": complexity_comment,
}
MEASURED: dict[str, Finder] = {
    "file-size": file_size,
    "function-size": function_size,
    "sentence-length": sentence_length,
}


def find(checkout: Checkout, rule: str) -> list[Finding]:
    """Return the findings of one rule, in the order of the files."""
    return sorted({**CHECKED, **MEASURED}[rule](checkout))
