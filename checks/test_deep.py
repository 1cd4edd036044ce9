"""Hold docs/internals/deep-tests.md to the tests that are marked deep, and to the parts of `make deep`."""

import json
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "internals" / "deep-tests.md").read_text(encoding="utf-8")


def rows(head):
    """Return the cells of a table of the page, line by line."""
    _, found, below = PAGE.partition(f"| {head}")
    assert found
    table = below.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


GUARDED = rows("left for `make deep`")
PARTS = {cells[0]: cells for cells in rows("part |")}


@pytest.fixture(scope="module")
def deep():
    """Return the script of `make deep` as a module."""
    loader = SourceFileLoader("deep", str(ROOT / ".ci" / "deep"))
    module = module_from_spec(spec_from_loader("deep", loader))
    sys.modules["deep"] = module  # attrs looks there
    loader.exec_module(module)
    return module


COLLECT = """
import json, pytest

class Told:
    def pytest_collection_finish(self, session):
        found = {True: set(), False: set()}
        for item in session.items:
            name = item.nodeid.partition("[")[0]
            found[item.get_closest_marker("deep") is not None].add(name)
        print(json.dumps({"deep": sorted(found[True]), "others": sorted(found[False])}))

pytest.main(["-qq", "--collect-only", "-m", "", "tests", "integration"], plugins=[Told()])
"""


@pytest.fixture(scope="module")
def items():
    """Return the files and names of all tests that are deep, and of all others."""
    told = subprocess.run(
        [sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    found = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    return [{tuple(name.split("::")) for name in found[kind]} for kind in ("deep", "others")]


def test_each_deep_test_has_a_row(items):
    left = " ".join(cells[0] for cells in GUARDED)
    named = set(re.findall(r"`([^`]+)`", left))
    missing = {(path, name) for path, name in items[0] if name not in named and path not in named}
    assert not missing


def test_each_row_names_a_deep_test(items):
    known = {word for pair in items[0] for word in pair}
    named = {word for cells in GUARDED for word in re.findall(r"`([^`]+\.py|test_\w+)`", cells[0])}
    assert named <= known


def test_each_guard_runs_in_make_test(items):
    stays = {name for _, name in items[1]}
    for left, guards in GUARDED:
        assert guards, left
        named = set(re.findall(r"`(test_\w+)`", guards))
        if "the same test" in guards:
            named |= set(re.findall(r"`(test_\w+)`", left))
        assert named <= stays, left


def test_each_deep_test_is_in_one_part(deep, items):
    for path, name in items[0]:
        parts = [
            part
            for part, what in deep.PARTS.items()
            if any(path.startswith(f"{folder}/") for folder in what.tests)
        ]
        assert len(parts) == 1, (path, name)


def test_the_page_has_each_part(deep):
    assert list(PARTS) == list(deep.PARTS)
