"""The list of mutants is kept: each still has a place in the source, and a row in the README."""

from pathlib import Path

import pytest
from mutant_list import MUTANTS

ROOT = Path(__file__).parents[2]
README = (Path(__file__).parent / "README.md").read_text()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_a_mutants_old_text_is_found_exactly_once(mutant):
    found = (ROOT / mutant.file).read_text().count(mutant.old)
    assert found == 1, f"{mutant.file} has changed: bring this mutant up to date in mutant_list.py"
    assert mutant.old != mutant.new
    assert all((ROOT / "tests" / f"{name}.py").exists() for name in mutant.tests)


def test_the_readme_has_a_row_for_each_mutant_and_no_other():
    rows = [line.split("|")[1].strip() for line in README.splitlines() if line.startswith("| ")]
    assert sorted(row for row in rows if row != "mutant") == sorted(one.what for one in MUTANTS)
