"""Check the rows of docs/pyspark.md, none of which may fail.

integration/spark/features_on_pyspark.py fills them.
"""

import ast
import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def pysparks():
    loader = importlib.machinery.SourceFileLoader("pysparks", str(ROOT / ".ci" / "pysparks"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("pysparks", loader))
    loader.exec_module(module)
    return module


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


@pytest.fixture(scope="module")
def written(pysparks):
    page = pysparks.PAGE.read_text(encoding="utf-8")
    table = page.partition(pysparks.BEGIN)[2].partition(pysparks.END)[0]
    return [cells(line) for line in table.splitlines()]


def test_table_has_a_row_for_each_feature(pysparks, written):
    tree = ast.parse((ROOT / pysparks.FEATURES).read_text(encoding="utf-8"))
    tests = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    rows = {row[0] for row in written[2:] if not row[0].startswith("with ")}
    assert rows == {ast.get_docstring(test) for test in tests}


def test_table_has_a_column_for_each_release(pysparks, written):
    assert len(written[0]) == len(pysparks.RELEASES) + 1
    releases = [version.rpartition(".")[0] for version in written[0][1:]]
    assert releases[:4] == ["4.0", "4.0", "4.1", "4.2"]


def test_table_has_no_failure(written):
    assert not [row for row in written if "**fails**" in row or "not run" in row]


def cases(*bodies):
    tests = "".join(
        f'<testcase name="{n}"><properties><property name="row" value="{row}"/>'
        f'<property name="versions" value="4.9.1 1 2 3"/>{more}</properties>{body}</testcase>'
        for n, (row, more, body) in enumerate(bodies)
    )
    return f"<testsuites><testsuite>{tests}</testsuite></testsuites>"


def test_table_shows_what_failed_and_what_was_found(pysparks, tmp_path, monkeypatch):
    monkeypatch.setattr(pysparks, "FOLDER", tmp_path)
    monkeypatch.setattr(pysparks, "RELEASES", {"4.9": ()})
    cell = '<property name="cell" value="one batch"/>'
    (tmp_path / "4.9.xml").write_text(
        cases(("a", "", ""), ("b", cell, ""), ("c", cell, "<failure/>"), ("d", "", "<skipped/>"))
    )
    assert [cells(line)[1] for line in pysparks.table().splitlines()[5:]] == [
        "yes", "one batch", "**fails**", "**fails**",
    ]  # fmt: skip
    assert cells(pysparks.table().splitlines()[0])[1] == "4.9.1"


def test_table_of_a_release_that_has_not_run_is_refused(pysparks, tmp_path, monkeypatch):
    monkeypatch.setattr(pysparks, "FOLDER", tmp_path)
    with pytest.raises(SystemExit, match=r"has not run: \.ci/pysparks lowest"):
        pysparks.table()
