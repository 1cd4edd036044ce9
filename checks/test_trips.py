"""Check that `.ci/trips` counts the files that a trip enters."""

import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from script_module import load

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / ".ci" / "trips"

FILES = {
    "rink/called.py": "def call(other=None):\n    return other and other()\n",
    "rink/imported.py": "A = 1\nclass B:\n    C = A\ndef never():\n    pass\n",
    "rink/testing/memory.py": "def call(other):\n    return other()\n",
    "other/outside.py": "def call(other):\n    return other()\n",
    "rink/waiting.py": "def wait(event):\n    event.wait()\n    event = None\n",
}


@pytest.fixture
def trips():
    """Return the script as a module."""
    return load("trips")


@pytest.fixture
def recorder(trips, tmp_path):
    """Return a recorder that follows this thread and the threads that begin."""
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    made = trips.Recorder(tmp_path)
    before = sys.getprofile(), threading.getprofile()
    made.install()
    yield made
    sys.setprofile(before[0])
    threading.setprofile(before[1])


@pytest.fixture
def module(tmp_path):
    """Return a function that imports one of the files."""

    def imported(path):
        spec = importlib.util.spec_from_file_location(Path(path).stem, tmp_path / path)
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    return imported


def run_in_thread(function):
    """Run a function in a thread of its own, and return the thread."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
    return thread


def test_trip_enters_the_files_whose_functions_run(recorder, module):
    called, testing = module("rink/called.py"), module("rink/testing/memory.py")
    outside = module("other/outside.py")
    assert recorder.trip(lambda: outside.call(testing.call(lambda: called.call))) == {
        "rink/called.py"
    }
    assert recorder.trip(lambda: None) == frozenset()


def test_trip_that_imports_a_file_does_not_enter_it(recorder, module):
    assert recorder.trip(lambda: module("rink/imported.py")) == frozenset()


def test_trip_counts_its_threads_without_those_named(recorder, module):
    called = module("rink/called.py")
    assert recorder.trip(lambda: run_in_thread(called.call)) == {"rink/called.py"}
    without = set()
    assert recorder.trip(lambda: without.add(run_in_thread(called.call)), without=without) == set()


def test_trip_enters_a_function_that_it_wakes(recorder, module):
    woken = threading.Event()
    thread = threading.Thread(target=module("rink/waiting.py").wait, args=(woken,))
    thread.start()
    assert recorder.trip(lambda: (woken.set(), thread.join())) == {"rink/waiting.py"}


def test_repeated_trip_counts_what_each_repeat_enters(trips):
    entered = iter([{"first"}, {"a", "b"}, {"a"}, {"a", "c"}])
    assert trips.repeated(lambda: frozenset(next(entered))) == {"a"}


def test_public_name_is_found_where_it_lies(trips):
    assert trips.public("Path", "no.such_module", "sys", "pathlib") is Path
    with pytest.raises(SystemExit, match=r"no Nobody in sys or pathlib: name its module in \.ci"):
        trips.public("Nobody", "sys", "pathlib")


def test_markdown_has_numbers_and_files(trips):
    files = {"one": frozenset({"rink/b.py", "rink/a.py"}), "two": frozenset({"rink/a.py"})}
    assert trips.markdown(files) == (
        "| trip | files |\n|---|--:|\n| one | 2 |\n| two | 1 |\n| all five | 2 |\n\n"
        "**one**\n\n- `rink/a.py`\n- `rink/b.py`\n\n**two**\n\n- `rink/a.py`"
    )


@pytest.mark.parametrize("name", ["role request", "watch event to lost", "leave"])
def test_trips_of_roles_enter_files_of_this_checkout(name):
    command = [sys.executable, SCRIPT, "--json", "--only", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    counted = json.loads(done.stdout)[name]
    assert counted["number"] == len(counted["files"]) > 5
    assert [path for path in counted["files"] if not (ROOT / path).is_file()] == []
    assert done.stderr == ""
