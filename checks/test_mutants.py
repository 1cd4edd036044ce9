"""Check the list of mutants.

Each mutant must have a place in the source, and a row in the page.
"""

import re
from pathlib import Path

import mutants
import pytest
from mutant_list import MUTANTS

ROOT = Path(__file__).parents[1]
TESTS = {
    path.stem: path
    for folder in ("tests", "integration")
    for path in (ROOT / folder).rglob("test_*.py")
}
ROWS = mutants.written()


def text_of(path):
    """Return a file of tests, with the tests that it imports.

    It may import a contract, for example.
    """
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"^from (\w+) import \*", text, re.MULTILINE):
        [shared] = (ROOT / "tests").rglob(f"{name}.py")
        text += shared.read_text(encoding="utf-8")
    return text


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_mutants_old_text_is_found_exactly_once(mutant):
    count = (ROOT / mutant.file).read_text().count(mutant.old)
    assert count == 1, f"{mutant.file} has changed: bring this mutant up to date in its list"
    assert mutant.old != mutant.new
    assert all((ROOT / "tests" / f"{name}.py").exists() for name in mutant.tests)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_every_mutant_of_python_compiles(mutant):
    """Every mutant of Python compiles.

    Otherwise each test would fail, and catch nothing.
    """
    if mutant.file.endswith(".py"):
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_every_mutant_is_another():
    names = [mutant.what for mutant in MUTANTS]
    assert sorted(names) == sorted(set(names))


def test_page_is_what_the_script_writes_of_its_own_rows():
    """The page is the script's output for its own rows.

    It has a row for each mutant, under its heading, and no other.
    """
    assert list(ROWS) == [mutant.what for mutant in MUTANTS], "run `make mutants`"
    assert mutants.PAGE.read_text(encoding="utf-8") == mutants.page(ROWS), "run `make mutants`"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_every_mutant_is_caught_by_a_test_that_exists(mutant):
    caught, _ = ROWS[mutant.what]
    named = re.findall(r"`(\w+)`: ([^;]+)", caught)
    assert named, "it survived"
    for file, test in named:
        names = f"def test_{test.replace(' ', '_')}("
        assert names in text_of(TESTS[f"test_{file}"]), f"{file}: {test}"


def test_every_column_of_evidence_is_explained():
    assert set(mutants.SAYS) == set(mutants.EVIDENCE)
