"""Check that README and CONTRIBUTING describe the tests that exist."""

import re
from pathlib import Path

import pytest
from docs_support import CONTRIBUTING, ROOT

PAGE = ROOT / "tests" / "README.md"

ROWS = {
    int(cells[0]): cells[2]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
    and (cells := [cell.strip() for cell in line.strip("| ").split(" | ")])
}

WITHOUT_SERVERS = ("tests", "checks")
FOLDERS = (*WITHOUT_SERVERS, "integration")

PAUSES = re.compile(
    r"\btime\.sleep\("
    r"|\basyncio\.sleep\((?!0\)|LONG_S\))"  # 0 lets the others run; LONG_S is cut short
    r"|\bEvent\(\)\.wait\([^)]"  # no other code can set this event
)

LATER = "comes? with the (streams|sidecar)"


def every_test():
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return set(re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE))


def test_every_complaint_has_its_row():
    assert list(ROWS) == list(range(1, 33))


def test_every_test_that_is_named_exists():
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    assert named
    assert sorted(named - every_test()) == []


@pytest.mark.parametrize("number", ROWS)
def test_every_row_names_a_test_or_what_it_comes_with(number):
    assert re.search(r"`test_\w+`", ROWS[number]) or re.search(LATER, ROWS[number], re.IGNORECASE)


def test_no_fast_test_sleeps():
    """No fast test sleeps, nor does a script within one.

    Tests wait for conditions, or their time is virtual.
    """
    pauses = [
        f"{path.relative_to(ROOT)}: {pause[0]}"
        for folder in WITHOUT_SERVERS
        for path in (ROOT / folder).rglob("*.py")
        for pause in PAUSES.finditer(path.read_text(encoding="utf-8"))
        if path != Path(__file__)
    ]
    assert pauses == []


@pytest.mark.parametrize(
    "pause", ["time.sleep(1)", "await asyncio.sleep(0.1)", "threading.Event().wait(2)"]
)
def test_pause_is_found(pause):
    assert PAUSES.search(pause)


def test_every_folder_is_named():
    text = PAGE.read_text(encoding="utf-8")
    folders = {
        path.parent.name for folder in WITHOUT_SERVERS for path in (ROOT / folder).glob("*/*.py")
    }
    named = set(re.findall(r"`(\w+)/`", text))
    assert {*folders, *FOLDERS} - {"tests"} <= named


def test_every_file_that_a_change_is_sent_to_exists():
    """A bare name lies in the folder of the path before it."""
    missing, folder = [], ROOT
    for word in re.findall(r"`([\w/*]+(?:\.py|/))`", CONTRIBUTING.read_text(encoding="utf-8")):
        path = ROOT / word if "/" in word else folder / word
        folder = path if word.endswith("/") else path.parent
        if word.startswith(("rink/", "tests/", "checks/")) or "/" not in word:
            missing += [] if list(path.parent.glob(path.name)) else [word]
    assert missing == []


def test_every_make_target_that_is_named_exists():
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    text = CONTRIBUTING.read_text(encoding="utf-8")
    named = {name for words in re.findall(r"`make ([a-z -]+)`", text) for name in words.split()}
    assert named - targets == set()
