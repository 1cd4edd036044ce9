"""Break each rule on purpose, and check that a test fails.

`python tests/core/mutants.py [words]` replaces one piece of the source for each mutant, in a copy
of the tree, and runs the files of tests that are to catch it. It prints the table of
docs/internals/mutants.md, or with words only the mutants whose description has one of them.

Other evidence has a column and an option of its own, see `EVIDENCE`. With `--walks` it also says
which mutants of the core the seeded walks find, and with `--worlds` which the small worlds find.
Each takes minutes, and both together half an hour. `--write` writes the page. Columns that were not
requested stay as they are.

Exit status 1: a mutant survived, or its old text is not found exactly once any more.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutant_list import BY_HEADING, MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "mutants.md"

EVIDENCE = {
    "walks": ("core/test_walks", ""),
    "worlds": ("worlds/test_worlds", "not deep or medium"),
}
"""Columns beside the named tests: a file of tests that the mutant does not name, and pytest's -m.

The mutants run all walks, but only the small worlds.
"""

NOTHING_SELECTED = 5  # pytest's exit status
SURVIVED = "**SURVIVED**"
NAMED = 2
TEST_S = 40
LONGEST_S = 300

HEAD = """# What each broken rule is caught by

Each rule is broken on purpose, by replacing one piece of the source, and the tests named here fail:
{count} mutants, of which {survived} survive. `make mutants` writes this page from
`tests/core/mutant_list.py`; do not edit it. A test checks that every mutant still has its place in
the source and its row here.

{columns}
"""
SAYS = {
    "walks": "*walks*: the seeded walks of `tests/core/test_walks.py` find it, too. They do not"
    " know where to look, so chance may not lead them there. Engine and client are outside their"
    " world.",
    "worlds": "*worlds*: the first of the [small worlds](../../tests/worlds/README.md) in which it"
    " breaks a rule. They have no readings of clocks, one scheme, and only readable values, so they"
    " find no mutant that needs more.",
}

Row = tuple[str, dict[str, str]]
"""The tests that catch a mutant, or "", and the cell of each column of evidence."""


def copy_tree(to: Path) -> Path:
    """Copy what the tests need."""
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("rink", "tests", "bench", "integration"):
        shutil.copytree(ROOT / name, to / name, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", to)
    return to


def failures(
    tree: Path,
    tests: tuple[str, ...],
    most: int,
    test_s: float = TEST_S,
    longest_s: float = LONGEST_S,
    marks: str = "not deep",
) -> list[str]:
    """Run files of tests; return the names of the first few that fail."""
    files = [f"tests/{name}.py" for name in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", f"--maxfail={most}"]
    command += ["-m", marks]
    command.append(f"--timeout={test_s}")  # a test that a mutant hangs has found it
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            [*command, *files],
            cwd=tree,
            env=env,
            capture_output=True,
            text=True,
            timeout=longest_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"no end within {longest_s} s"]
    if run.returncode == 0:
        return []
    if run.returncode == NOTHING_SELECTED:
        raise LookupError(f"no test in {', '.join(files)} has the mark {marks!r}")
    found = re.findall(
        r"^(?:FAILED|ERROR) \S*?test_(\w+)\.py(?:::test_(\w+))?(?:\[(.+?)\])?",
        run.stdout,
        re.MULTILINE,
    )
    names = dict.fromkeys(named(*one) for one in found)
    return list(names) or [f"exit status {run.returncode}"]


def named(file: str, test: str, parameter: str) -> str:
    """Return a test for the table; for the worlds, also which one."""
    where = f" in {parameter}" if file == "worlds" and parameter else ""
    return f"`{file}`: {test.replace('_', ' ')}{where}"


def catch(mutant: Mutant, tree: Path, evidence: list[str]) -> Row:
    """Break a rule in a tree, run its tests, and restore the tree."""
    path = tree / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return "", {"walks": f"its old text is found {text.count(mutant.old)} times"}
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        caught = failures(tree, mutant.tests, NAMED)
        found = {column: evidence_of(mutant, tree, column) for column in evidence}
    finally:
        path.write_text(text)
    return "; ".join(caught), found


def evidence_of(mutant: Mutant, tree: Path, column: str) -> str:
    """Return whether a column's tests find a mutant of the core, or where.

    It is where if a test has parameters that say so.
    """
    found: list[str] = []
    if mutant.is_of_core:  # slowness is no evidence, so there is time enough
        file, marks = EVIDENCE[column]
        found = failures(tree, (file,), 1, 2 * LONGEST_S, 6 * LONGEST_S, marks)
    _, _, where = found[0].partition(" in ") if found else ("", "", "")
    return where or ("yes" if found else "")


def catch_all(chosen: list[Mutant], trees: list[Path], evidence: list[str]) -> dict[str, Row]:
    """Break one rule after another, in all trees at once."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def run(mutant: Mutant) -> Row:
        tree = free.get()
        try:
            return catch(mutant, tree, evidence)
        finally:
            free.put(tree)

    rows: dict[str, Row] = {}
    with ThreadPoolExecutor(len(trees)) as pool:
        for mutant, row in zip(chosen, pool.map(run, chosen), strict=True):
            rows[mutant.what] = row
            print(line(mutant.what, row, evidence), flush=True)
    return rows


def line(what: str, row: Row, columns: list[str]) -> str:
    """Return one line of the table."""
    caught, found = row
    cells = [what, caught or SURVIVED, *(found.get(column, "") for column in columns)]
    return f"| {' | '.join(cells)} |"


def written() -> dict[str, Row]:
    """Return the rows of the page as it is."""
    rows: dict[str, Row] = {}
    columns: list[str] = []
    for text in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else ():
        cells = [cell.strip() for cell in text.split("|")[1:-1]]
        if cells[:1] == ["mutant"]:
            columns = cells[2:]
        elif cells and not cells[0].startswith("---"):
            caught = "" if cells[1] == SURVIVED else cells[1]
            rows[cells[0]] = caught, dict(zip(columns, cells[2:], strict=True))
    return rows


def page(rows: dict[str, Row]) -> str:
    """Return the whole page."""
    columns = list(EVIDENCE)
    survived = sum(not caught for caught, _ in rows.values())
    says = "\n".join(SAYS[one] for one in columns)
    parts = [HEAD.format(count=len(MUTANTS), survived=survived, columns=says)]
    for heading, mutants in BY_HEADING.items():
        parts.append(f"## {heading}\n\n{table_head(columns)}")
        parts += [line(one.what, rows[one.what], columns) for one in mutants]
        parts.append("")
    return "\n".join(parts)


def table_head(columns: list[str]) -> str:
    """Return the head of a table."""
    names = ["mutant", "caught by", *columns]
    return f"| {' | '.join(names)} |\n{'|---' * len(names)}|"


def write(rows: dict[str, Row]) -> None:
    """Write the page with these rows; other cells stay as they are."""
    before = written()
    merged = {
        one.what: (rows[one.what][0], {**before.get(one.what, ("", {}))[1], **rows[one.what][1]})
        if one.what in rows
        else before.get(one.what, ("", {}))
        for one in MUTANTS
    }
    PAGE.write_text(page(merged), encoding="utf-8")


def options(words: list[str]) -> argparse.Namespace:
    """Parse the arguments."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("words", nargs="*", help="only mutants whose description has one of these")
    for column, (file, _) in EVIDENCE.items():
        does = f"also run {file}: minutes"
        parser.add_argument(f"--{column}", action="store_true", help=does)
    parser.add_argument("--write", action="store_true", help="write docs/internals/mutants.md")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Break the chosen rules one by one; return the exit status."""
    asked = options(words)
    evidence = [column for column in EVIDENCE if getattr(asked, column)]
    chosen = [m for m in MUTANTS if not asked.words or any(word in m.what for word in asked.words)]
    if not chosen:
        print("no mutant's description has any of these words:", *asked.words)
        return 1
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trees = [copy_tree(Path(folder, str(index))) for index in range(os.cpu_count() or 1)]
        tests = tuple(dict.fromkeys(name for mutant in chosen for name in mutant.tests))
        if found := failures(trees[0], tests, NAMED, longest_s=6 * LONGEST_S):
            print("before anything is broken:", *found)
            return 1
        print(table_head(evidence))
        rows = catch_all(chosen, trees, evidence)
    if asked.write:
        write(rows)
    survived = sum(not caught for caught, _ in rows.values())
    seconds = time.monotonic() - begin
    print(f"\n{len(chosen)} mutants, {survived} of them survived; {seconds:.0f} s")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
