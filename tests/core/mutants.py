"""Breaks each rule on purpose and sees that a test fails: `python tests/core/mutants.py [words]`.

Each mutant replaces one piece of the source, in a copy of the tree, and runs the files of tests that
are to catch it. It prints the table of the README beside; with words, only of mutants whose
description has one of them; with `--walks`, it also says which the seeded walks find, which takes
minutes. Exit status 1: one survived, or its old text is not found exactly once any more.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mutant_list import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
WALKS = ("core/test_walks",)
NAMED = 2
LONGEST_S = 300


def copy_tree(to: Path) -> None:
    """Copy what tests of the core and the engine need."""
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("rink", "tests/core", "tests/engine"):
        shutil.copytree(ROOT / name, to / name, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", to)


def failures(tree: Path, tests: tuple[str, ...], most: int) -> list[str]:
    """Run files of tests; return the names of those that fail, the first few."""
    files = [f"tests/{name}.py" for name in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", f"--maxfail={most}"]
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            [*command, *files],
            cwd=tree,
            env=env,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"no end within {LONGEST_S} s"]
    if run.returncode == 0:
        return []
    found = re.findall(
        r"^(?:FAILED|ERROR) \S*?test_(\w+)\.py(?:::test_([\w]+))?", run.stdout, re.MULTILINE
    )
    return list(dict.fromkeys(f"`{file}`: {test.replace('_', ' ')}" for file, test in found)) or [
        f"exit status {run.returncode}"
    ]


def catch(mutant: Mutant, tree: Path, *, walks: bool) -> tuple[str, str]:
    """Return what catches a mutant, empty where nothing does, and whether the walks do."""
    path = tree / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return "", f"its old text is found {text.count(mutant.old)} times"
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        caught = failures(tree, mutant.tests, NAMED)
        by_walks = "yes" if walks and failures(tree, WALKS, 1) else ""
    finally:
        path.write_text(text)
    return "; ".join(caught), by_walks


def main(words: list[str]) -> int:
    """Break what was asked for, rule by rule; the exit status."""
    walks = "--walks" in words
    words = [word for word in words if not word.startswith("--")]
    chosen = [m for m in MUTANTS if not words or any(word in m.what for word in words)]
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        copy_tree(tree)
        tests = tuple(dict.fromkeys(name for mutant in chosen for name in mutant.tests))
        if found := failures(tree, tests, NAMED):
            print("before anything is broken:", *found)
            return 1
        print("| mutant | caught by | walks |\n|---|---|---|")
        for mutant in chosen:
            caught, by_walks = catch(mutant, tree, walks=walks)
            survived += not caught
            print(f"| {mutant.what} | {caught or '**SURVIVED**'} | {by_walks} |", flush=True)
    print(f"\n{len(chosen)} mutants, {survived} of them survived")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
