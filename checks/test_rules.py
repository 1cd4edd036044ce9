"""Check that each cited rule has a section, and what that names exists.

A citation is `R` and one or two digits, as a word of a page, a comment or a docstring. What stands
in code, or in a directive such as `noqa`, cites no rule.
"""

import ast
import re

import pytest
from mutant_list import MUTANTS
from texts import ROOT, comments, every_text, without_code, words_for_people

RULES = ROOT / "docs" / "internals" / "rules.md"
PARTS = ("Without it", "Kept by", "Tests", "Mutants")

CITATION = re.compile(r"\bR(\d{1,2})\b")
SECTION = re.compile(r"^## R(\d+) [^\n]+\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall(RULES.read_text(encoding="utf-8")))
BREAKS = {mutant.what: mutant for mutant in MUTANTS}


def cited_in(words):
    return set(CITATION.findall(without_code(words)))


def cited(*folders):
    """Return the numbers of the rules that the files of some folders cite."""
    numbers = set()
    for path in every_text():
        is_in = path.relative_to(ROOT).parts[0] in folders and path != RULES
        is_read = is_in and path.suffix in {".py", ".md", ".lua"}
        if is_read and CITATION.search(path.read_text(encoding="utf-8")):
            numbers |= cited_in(words_for_people(path))
    return numbers


def part(rule, name):
    """Return one paragraph of a section, on one line."""
    _, _, rest = SECTIONS[rule].partition(f"\n**{name}:** ")
    assert rest, name
    return " ".join(rest.partition("\n\n")[0].split())


def named(rule, name):
    """Return the files of a paragraph, each with the names behind it."""
    files = {}
    for word in re.findall(r"`([^`]+)`", part(rule, name)):
        if "/" in word:
            names = files.setdefault(word, set())
        else:
            names.add(word)
    assert files
    return files


def defined(path):
    """Return what a module defines: `name`, and `Class.name`."""

    def names(body):
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.name
            if isinstance(node, ast.ClassDef):
                yield from (f"{node.name}.{name}" for name in names(node.body))
            if isinstance(node, ast.Assign):
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id

    return set(names(ast.parse(path.read_text(encoding="utf-8")).body))


def missing(rule, name):
    """Return the files and names of a paragraph that do not exist."""
    absent = []
    for file, names in named(rule, name).items():
        path = ROOT / file
        if path.is_file():
            absent += [f"{file}: {name}" for name in sorted(names - defined(path))]
        else:
            absent.append(file)
    return absent


def test_rules_cited_are_those_of_the_page():
    folders = ("rink", "tests", "integration", "checks", "docs", "bench", "examples")
    assert cited(*folders) - SECTIONS.keys() == set()


def test_rules_of_the_page_are_all_cited_by_the_library():
    assert SECTIONS.keys() - cited("rink") == set()


def test_rules_of_the_page_are_numbered_without_a_gap():
    assert list(SECTIONS) == [str(number) for number in range(1, len(SECTIONS) + 1)]


@pytest.mark.parametrize("rule", SECTIONS, ids=lambda rule: f"R{rule}")
def test_rule_has_each_part_in_order(rule):
    assert tuple(re.findall(r"^\*\*([\w ]+):\*\*", SECTIONS[rule], re.MULTILINE)) == PARTS


@pytest.mark.parametrize("rule", SECTIONS, ids=lambda rule: f"R{rule}")
def test_rule_is_kept_by_code_that_exists(rule):
    assert all(file.startswith("rink/") for file in named(rule, "Kept by"))
    assert missing(rule, "Kept by") == []


@pytest.mark.parametrize("rule", SECTIONS, ids=lambda rule: f"R{rule}")
def test_rule_is_guarded_by_tests_that_exist(rule):
    assert all(re.search(r"/test_\w+\.py$", file) for file in named(rule, "Tests"))
    assert missing(rule, "Tests") == []


@pytest.mark.parametrize("rule", SECTIONS, ids=lambda rule: f"R{rule}")
def test_rule_is_broken_by_mutants_of_its_code(rule):
    """Refuse a mutant of a file that "Kept by" does not name."""
    mutants = re.findall(r'"([^"]+)"', part(rule, "Mutants"))
    assert 2 <= len(mutants) <= 6
    assert [what for what in mutants if what not in BREAKS] == []
    elsewhere = {BREAKS[what].file for what in mutants} - named(rule, "Kept by").keys()
    assert elsewhere == set()


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("# only the member writes it (R1)", {"1"}),
        ('"""R3-R4: a docstring."""', {"3", "4"}),
        ("R6 = 1  # noqa: R7", set()),
        ('R6 = "R8"  # `R9` is a name of code', set()),
        ("x = 1  # noqa: PLR0913, RUF012 - R0913 of pylint", set()),
    ],
)
def test_citation_is_told_from_code_and_directives(source, numbers):
    assert cited_in(comments(source)) == numbers
