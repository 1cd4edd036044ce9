"""Check the rules of language and the measures that `.ci/style` has."""

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from script_module import load
from style import command, findings, pages, table
from style.sources import Source

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "style"

COMPLEX = "".join(f"    if a == {number}:\n        return {number}\n" for number in range(11))


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a file and gives the checkout."""
    (tmp_path / "Makefile").write_text("all:\n")
    (tmp_path / "README.md").write_text("# Rink\n")

    def written(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return findings.Checkout(tmp_path)

    return written


def lines_of(checkout, rule):
    """Return path and line of each finding."""
    return [f"{finding.path}:{finding.line}" for finding in findings.find(checkout, rule)]


def source(text):
    return Source(Path("rink/one.py"), text)


# ── docstrings ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("length", "lines"), [(72, []), (73, ["rink/one.py:2"])])
def test_docstring_length_above_72_is_found(write, length, lines):
    checkout = write("rink/one.py", f'def one():\n    """{"x" * length}"""\n')
    assert lines_of(checkout, "docstring-length") == lines


def test_docstring_length_is_that_of_the_first_line(write):
    checkout = write(
        "rink/one.py", f'"""\n{"x" * 73}\n"""\n\nclass A:\n    """A.\n\n    {"x" * 80}\n    """\n'
    )
    assert lines_of(checkout, "docstring-length") == ["rink/one.py:2"]


@pytest.mark.parametrize("word", sorted(findings.OPENINGS))
def test_docstring_opening_with_a_word_of_rule_2_is_found(write, word):
    checkout = write("tests/one.py", f'"""Return it."""\nclass A:\n    """{word}\'s done."""\n')
    assert lines_of(checkout, "docstring-opening") == ["tests/one.py:3"]


def test_docstring_below_an_assignment_is_checked_as_well(write):
    checkout = write("rink/a.py", '"""Read."""\nLIMIT = 3\n"""What a worker may hold."""\n')
    assert lines_of(checkout, "docstring-opening") == ["rink/a.py:3"]


@pytest.mark.parametrize("text", ["Item of it.", "Ask it.", "Return what it is.", "Offset."])
def test_docstring_opening_with_another_word_is_allowed(write, text):
    assert lines_of(write("rink/one.py", f'"""{text}"""\n'), "docstring-opening") == []


# ── names ────────────────────────────────────────────────────────────────────────────────────────


def test_class_name_in_two_modules_is_found_once(write):
    write("rink/one.py", "\nclass Plan: ...\nclass Role: ...\n")
    write("tests/three.py", "class Plan: ...\n")
    checkout = write("rink/b/two.py", "class Plan: ...\nclass Role: ...\n")
    (finding,) = findings.find(checkout, "class-name")
    assert str(finding) == (
        "rink/b/two.py:1: class-name: class Plan is also in rink/one.py:2; rename all but one"
    )


@pytest.mark.parametrize(
    "text",
    [
        "class {}: ...",
        "{} = Role | int",
        "{}: TypeAlias = Any",
        '{} = NewType("{}", int)',
        "if TYPE_CHECKING:\n    {} = Role | int",
    ],
)
@pytest.mark.parametrize("name", ["Plan", "_Plan", "URLs"])
def test_type_name_of_a_class_and_of_an_alias_is_found(write, text, name):
    write("rink/a.py", f"class {name}: ...\n")
    assert lines_of(write("rink/b.py", text.format(name, name)), "class-name") == ["rink/a.py:1"]


@pytest.mark.parametrize(
    "text",
    [
        'Plan = TypeVar("Plan", bound=int)',
        'Plan = typing.ParamSpec("Plan")',
        'Plan = TypeVarTuple("Plan")',
        "from rink.a import Plan",
        "def plan():\n    Plan = Role | int",
        "class Role:\n    Plan = int",
        "PLAN = plan = 3",
    ],
)
def test_type_variable_and_local_name_are_no_type_names(write, text):
    write("rink/a.py", "class Plan: ...\nPLAN = plan = 2\n")
    assert lines_of(write("rink/b.py", text), "class-name") == []


def test_file_name_in_two_folders_is_found_once(write):
    for path in ("rink/a/two.py", "rink/b/two.py", "rink/a/__init__.py", "rink/b/__init__.py"):
        checkout = write(path, "")
    (finding,) = findings.find(checkout, "file-name")
    assert str(finding) == (
        "rink/a/two.py:1: file-name: the name two.py is also in rink/b/two.py:1; rename all but one"
    )


def test_allowed_names_have_a_meaning_each():
    allowed = findings.CLASSES_OF_BOTH_FACES | findings.FILES_OF_ONE_MEANING
    assert [name for name, meaning in allowed.items() if len(meaning.split()) < 3] == []


@pytest.mark.parametrize("word", sorted(findings.NO_NOUNS))
@pytest.mark.parametrize(
    "text",
    [
        "{} = 1",
        "def role(*, {}=1): ...",
        "role = lambda {}: 1",
        "roles = [1 for {} in names]",
        "if {} := 1: ...",
        "with role as (name, {}): ...",
        "class Role: role = [{0} for {0} in names]",
        "try: ...\nexcept OSError as {}: ...",
        "match role:\n    case [name, *{}]: ...",
    ],
)
def test_variable_that_is_no_noun_is_found(write, text, word):
    text = f"\n{text}\n".format(word)
    (finding,) = findings.find(write("rink/a.py", text), "variable-name")
    line = text[: text.index(word)].count("\n") + 1
    assert str(finding) == (
        f"rink/a.py:{line}: variable-name: {word} only points at a value; name the noun"
    )


@pytest.mark.parametrize(
    "text",
    [
        "class Role:\n    found: int\n    one = asked = 1\n",
        "def found(role):\n    role.told = role.asked(given=1)\n",
        "def role(founder, the_one):\n    return one[founder]\n",
        'role = "found = 1"  # one = 1\n',
    ],
)
def test_attribute_function_and_noun_are_allowed(write, text):
    assert lines_of(write("rink/a.py", text), "variable-name") == []


@pytest.mark.parametrize(("room", "lines"), [("tests", []), ("checks", ["checks/a.py:1"])])
def test_variables_of_checks_are_checked_and_of_tests_are_free(write, room, lines):
    assert lines_of(write(f"{room}/a.py", "found = 1\n"), "variable-name") == lines


@pytest.mark.parametrize(("length", "lines"), [(70, []), (71, ["integration/test_one.py:3"])])
def test_test_name_above_70_is_found(write, length, lines):
    name = "test_".ljust(length, "x")
    text = f"def {'x' * 80}(): ...\nclass A:\n    async def {name}(self): ...\n"
    assert lines_of(write("integration/test_one.py", text), "test-name") == lines


@pytest.mark.parametrize("article", ["a", "an", "the"])
def test_test_name_with_an_article_in_front_is_found(write, article):
    text = f"def test_{article}_role(): ...\ndef test_{article}role(): ...\ndef test_role(): ...\n"
    assert lines_of(write("tests/test_one.py", text), "test-name") == ["tests/test_one.py:1"]


# ── lines ────────────────────────────────────────────────────────────────────────────────────────

LONG = "x = " + "1" * 97
"""A line of 101 columns."""


@pytest.mark.parametrize(
    "path", ["rink/a.py", "rink/a.lua", "deploy/a.sh", "deploy/a.yaml", "examples/b/a.yml"]
)
def test_line_length_of_code_above_100_is_found(write, path):
    assert lines_of(write(path, f"{LONG[:-1]}\n{LONG}\n"), "line-length") == [f"{path}:2"]


def test_line_length_of_scripts_and_makefile_is_checked(write):
    write("Makefile", f"all:\n\t{LONG[:97]}\n")
    checkout = write(".ci/run", f"#!/bin/bash\n{LONG}\n")
    assert lines_of(checkout, "line-length") == [".ci/run:2", "Makefile:2"]


@pytest.mark.parametrize("path", ["rink/a_pb2.py", "rink/a.proto", "rink/a", "docs/a.md"])
def test_line_length_of_generated_files_and_prose_is_free(write, path):
    assert lines_of(write(path, f"{LONG}\n| {LONG} |\n```\n{LONG}\n```\n"), "line-length") == []


def test_line_length_of_one_word_is_free(write):
    checkout = write("rink/a.py", f"# https://{'x' * 100}\n# see {'x' * 100}\n")
    assert lines_of(checkout, "line-length") == ["rink/a.py:2"]


def test_line_length_of_code_blocks_is_checked(write):
    checked = f"```python\n{LONG}\n```\n"
    free = f"{LONG}\n\n```text\n{LONG}\n```\n"
    text = f"# Page\n\n{checked}\n{free}\n~~~sh\n{LONG}\n~~~\n"
    write("docs/internals/a.md", text)
    checkout = write("CONTRIBUTING.md", text)
    lines = [
        f"{path}:{line}" for path in ("CONTRIBUTING.md", "docs/internals/a.md") for line in (4, 14)
    ]
    assert sorted(lines_of(checkout, "line-length")) == sorted(lines)


# ── comments ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        f"def one(a):\n{COMPLEX}",
        f"def one(a):  # why\n{COMPLEX}",
        f"def one(a):  # noqa: C901\n    # noqa: ERA001\n{COMPLEX}",
        f"# ── ones ──\ndef one(a):\n{COMPLEX}",
        f"# why\n\ndef one(a):\n{COMPLEX}",
        f'def one(a):\n    """Return one.\n\n    # why\n    """\n{COMPLEX}',
    ],
)
def test_complexity_above_10_without_a_comment_line_is_found(write, text):
    (finding,) = findings.find(write("rink/one.py", text), "complexity-comment")
    assert finding.line == text[: text.index("def ")].count("\n") + 1
    assert "one is above complexity 10" in finding.advice


@pytest.mark.parametrize(
    "text",
    [
        f"def one(a):\n    # why\n{COMPLEX}",
        f"def one(a):\n{COMPLEX}    # why\n    return 0\n",
        f"# why\n@made\ndef one(a):\n{COMPLEX}",
        f"def one(a):\n{COMPLEX[: COMPLEX.index('    if a == 9')]}",
    ],
)
def test_complexity_with_a_comment_line_or_up_to_10_is_allowed(write, text):
    assert lines_of(write("rink/one.py", text), "complexity-comment") == []


# ── DEBT ─────────────────────────────────────────────────────────────────────────────────────────

TWO = [findings.Finding("rink/a.py", line, "line-length", "break it") for line in (1, 2)]


def test_debt_that_is_exact_passes():
    assert list(command.judged(TWO, {"line-length": {"rink": 2}})) == []


def test_findings_without_debt_are_named():
    complaints = list(command.judged(TWO, {"line-length": {"tests": 0}}))
    assert complaints == [f"rink/a.py:{line}: line-length: break it" for line in (1, 2)]


def test_findings_above_debt_are_counted():
    (complaint,) = command.judged(TWO, {"line-length": {"rink": 1}})
    assert complaint.startswith("rink: line-length: 2 findings, and DEBT has 1; ")


@pytest.mark.parametrize(
    ("now", "end"), [(TWO, " from 3 to 2"), ([], " from 3 to 0, which is to remove the entry")]
)
def test_debt_above_the_findings_must_be_lowered(now, end):
    (complaint,) = command.judged(now, {"line-length": {"rink": 3}})
    assert "lower DEBT in .ci/style" in complaint
    assert complaint.endswith(end)


def test_debt_names_checked_rules_and_real_rooms():
    debt = load("style").DEBT
    assert set(debt) <= set(findings.CHECKED)
    rooms = {room for counts in debt.values() for room in counts}
    assert [room for room in rooms if not (ROOT / room).exists()] == []


def test_debt_as_printed_is_debt(write):
    checkout = write("rink/a.py", f"{LONG}\n{LONG}\n")
    debt = command.debt_of(command.all_findings(checkout))
    assert debt == {"line-length": {"rink": 2}}
    read = {}
    exec(command.written(debt), read)
    assert read["DEBT"] == debt


@pytest.mark.parametrize(
    ("debt", "status"),
    [({}, 1), ({"line-length": {"rink": 1}}, 0), ({"test-name": {"rink": 1}}, 1)],
)
def test_exit_status_is_1_when_something_is_to_be_done(write, tmp_path, debt, status):
    write("rink/a.py", f"{LONG}\n")
    assert command.main(debt, "", ["--root", str(tmp_path)]) == status


# ── measures ─────────────────────────────────────────────────────────────────────────────────────

COUNTED = '''#!/usr/bin/env python3
"""Count.

More.
"""

# why
# and how
A = 1  # one
B = "# none"  # noqa: S105
"""Of B."""


def one():
    """Return one."""
    # type: ignore
    return """
# text
"""
'''


def test_code_lines_are_without_comments_and_docstrings():
    assert (
        source(
            '"""A."""\n\n# b\nA = 1\n\n"""Of A\nand more."""\n\ndef f():\n    return A\n'
        ).code_lines
        == 3
    )


def test_comments_are_without_pragmas_and_text():
    assert source(COUNTED).comments == {7: True, 8: True, 9: False}


def test_words_and_sentences_of_a_page_are_without_code_and_comments():
    page = (
        "# Two words\n\nOne `code of one word` and [a link](there.md), e.g. this. Then:\nmore.\n\n"
        "<!-- none\nof it -->\n```python\nnone = 1\n```\n- an item\n- another\n  item!\n\n"
        "| head | of two |\n|---|--:|\n| a cell. And one | -- |\n"
    )
    sentences = [attrs.astuple(sentence) for sentence in pages.sentences(page)]
    assert sentences == [
        (1, 2, "Two words"),
        (3, 7, "One code and a link, e.g."),
        (3, 1, "Then"),
        (3, 1, "more"),
        (11, 2, "an item"),
        (12, 2, "another item"),
        (15, 1, "head"),
        (15, 2, "of two"),
        (17, 2, "a cell"),
        (17, 2, "And one"),
    ]
    assert pages.words(page) == sum(words for _, words, _ in sentences)


@pytest.mark.parametrize(("words", "lines"), [(30, []), (31, ["docs/how/a.md:3"])])
def test_sentence_above_30_words_is_found_in_pages_for_users(write, words, lines):
    text = f"# A\n\n{'word ' * words}. {'word ' * 10}.\n"
    for path in ("docs/internals/a.md", "docs/design/a.md", "examples/a.md", "docs/how/a.md"):
        checkout = write(path, text)
    assert lines_of(checkout, "sentence-length") == lines


def test_sizes_above_the_bounds_are_found(write):
    body = "    a = 1\n"
    checkout = write("rink/a.py", f"def one():\n{body * 49}\ndef two():\n{body * 50}" + "\n" * 299)
    assert lines_of(checkout, "function-size") == ["rink/a.py:52"]
    assert lines_of(checkout, "file-size") == ["rink/a.py:1"]
    assert lines_of(write("rink/a.py", "\n" * 400), "file-size") == []


def test_measures_of_a_checkout_are_those_of_its_files(write):
    write("rink/a.py", COUNTED)
    measures = table.measure(write("tests/test_a.py", f"def {'test_'.ljust(71, 'x')}(): ...\n"))
    rink = measures["rooms"]["rink"]
    assert rink["code lines"] == 6
    assert (rink["comment lines"], rink["comments beside code"]) == (2, 1)
    assert rink["comment lines per code line"] == 0.3333
    assert rink["comments per code line"] == 0.5
    assert rink["lines of a function"] == "6 / 6 / 6"
    assert measures["rooms"]["tests"]["test-name"] == 1
    assert list(measures["pages"]) == ["README.md"]
    assert measures["largest"]["functions"] == {"rink/a.py:14 one": 6}


def test_table_has_all_measures_of_this_checkout():
    printed = subprocess.run(
        [sys.executable, SCRIPT, "--table", "--root", ROOT],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [label for label in table.LABELS.values() if f"| {label} |" not in printed] == []
    assert "| docs/concepts.md |" in printed
    widths = [{line.count(" | ") for line in part.splitlines()} for part in printed.split("\n\n")]
    assert [width for width in widths if len(width) != 1] == []


def test_list_and_json_are_printed(write, tmp_path, capsys):
    write("rink/a.py", f"{LONG}\n")
    assert command.main({}, "", ["--list", "line-length", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "rink/a.py:1: line-length: has 101 columns; break it at 100\n"
    assert command.main({}, "", ["--json", "--root", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["rooms"]["rink"]["line-length"] == 1
