"""Check the page of deep tests, and the parts of `make deep`."""

import ast
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from script_module import load

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "internals" / "deep-tests.md").read_text(encoding="utf-8")


def rows(head):
    """Return the cells of a table of the page, row by row."""
    _, heading, below = PAGE.partition(f"| {head}")
    assert heading
    lines = below.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


GUARDED = rows("left for `make deep`")


@pytest.fixture(scope="module")
def deep():
    """Return the script of `make deep` as a module."""
    return load("deep")


COLLECT = """
import json, pytest

class Printer:
    def pytest_collection_finish(self, session):
        nodeids = {True: [], False: []}
        for item in session.items:
            nodeids[item.get_closest_marker("deep") is not None].append(item.nodeid)
        print(json.dumps({"deep": nodeids[True], "others": nodeids[False]}))

arguments = ["-qq", "--collect-only", "-m", "", "tests", "integration"]
raise SystemExit(pytest.main(arguments, plugins=[Printer()]))
"""


@pytest.fixture(scope="module")
def nodeids():
    """Return the node ids of all tests, by `deep` and `others`."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


@pytest.fixture(scope="module")
def tests(nodeids):
    """Return pairs of a file and a test's name, by `deep` and `others`."""
    return {
        kind: {tuple(nodeid.partition("[")[0].split("::")) for nodeid in nodeids[kind]}
        for kind in nodeids
    }


def test_each_deep_test_has_a_row(tests):
    left = " ".join(cells[0] for cells in GUARDED)
    named = set(re.findall(r"`([^`]+)`", left))
    assert not {(path, name) for path, name in tests["deep"] if not named & {path, name}}


def test_each_row_names_a_deep_test(tests):
    known = set(itertools.chain.from_iterable(tests["deep"]))
    named = {word for cells in GUARDED for word in re.findall(r"`([^`]+\.py|test_\w+)`", cells[0])}
    assert named <= known


def test_each_guard_runs_in_make_test(tests):
    others = {name for _, name in tests["others"]}
    for left, guards in GUARDED:
        assert guards, left
        named = set(re.findall(r"`(test_\w+)`", guards))
        if "the same test" in guards:
            named |= set(re.findall(r"`(test_\w+)`", left))
        assert named <= others, left


def test_each_deep_test_is_in_one_part(deep, tests):
    for path, name in tests["deep"]:
        parts = [
            part_name
            for part_name, part in deep.PARTS.items()
            if any(path.startswith(f"{folder}/") for folder in part.tests)
        ]
        assert len(parts) == 1, (path, name)


def test_no_deep_test_is_deselected_with_another(nodeids):
    """Check that no node id of a deep test begins with another one.

    pytest's --deselect takes a prefix, and .ci/deep deselects the tests that passed.
    """
    ordered = sorted(nodeids["deep"])
    assert not [pair for pair in itertools.pairwise(ordered) if pair[1].startswith(pair[0])]


def test_each_pathspec_of_a_part_matches_a_file(deep):
    for part in deep.PARTS.values():
        for pathspec in part.files:
            listing = subprocess.run(
                ["git", "ls-files", "--", pathspec], cwd=ROOT, capture_output=True, check=True
            )
            assert listing.stdout, pathspec


def test_each_part_runs_again_when_its_tests_change(deep):
    for part in deep.PARTS.values():
        for folder in part.tests:
            assert any(folder == path or folder.startswith(f"{path}/") for path in part.files)


def test_part_bench_has_each_part_of_the_bench(deep):
    tree = ast.parse((ROOT / "bench" / "run.py").read_text(encoding="utf-8"))
    (parts,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PARTS"
    ]
    assert list(deep.BENCHES) == parts


def test_page_has_each_part(deep):
    assert [cells[0] for cells in rows("part |")] == list(deep.PARTS)
