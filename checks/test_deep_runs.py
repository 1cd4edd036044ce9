"""Check which results `.ci/deep` counts, and that it can be stopped.

It counts only passed runs.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from script_module import load

TESTS = """
import pathlib, pytest

pytestmark = pytest.mark.deep
RUNS = pathlib.Path(__file__).parents[1] / "build" / "runs"

def note(name):
    with RUNS.open("a") as file:
        file.write(name + " ")

def test_sound():
    note("sound")

def test_moody():
    note("moody")
    assert not RUNS.with_name("bad mood").exists()
"""
CHANGES_ITSELF = """
def test_changing():
    with open(__file__, "a") as file:
        file.write("#")
"""
FAILS_AT_ITS_END = """
def pytest_sessionfinish(session):
    session.exitstatus = 1
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a repository with one part, `tiny`, which has two deep tests."""
    deep = load("deep")
    (tmp_path / "tests").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = deep\naddopts = -p no:randomly\n")
    (tmp_path / ".gitignore").write_text("build\n__pycache__\n")
    (tmp_path / "tests" / "test_tiny.py").write_text(TESTS)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setattr(deep, "ROOT", tmp_path)
    monkeypatch.setattr(deep, "RESULTS", tmp_path / "build" / "deep")
    tiny = deep.Part(files=("tests",), tests=("tests",), distribution=("-n", "0"))
    monkeypatch.setattr(deep, "PARTS", {"tiny": tiny})
    return Project(deep, tmp_path)


class Project:
    """Run the step `tests` of the part `tiny`."""

    def __init__(self, deep, root):
        self.deep, self.root = deep, root

    def step(self):
        return self.deep.Step.of_now("tiny", "tests")

    def run(self):
        """Run the step; return whether its result counts, and which tests ran."""
        runs = self.root / "build" / "runs"
        runs.unlink(missing_ok=True)
        with (self.root / "build" / "output").open("w") as output:
            counts = self.step().run(output)
        return counts, runs.read_text().split() if runs.exists() else []


def test_step_that_passed_has_passed_until_a_file_changes(project):
    assert project.run() == (True, ["sound", "moody"])
    assert project.step().has_passed
    (project.root / "tests" / "new.py").write_text("")
    assert not project.step().has_passed


def test_step_after_a_failure_runs_only_the_test_that_failed(project):
    mood = project.root / "build" / "bad mood"
    mood.touch()
    assert project.run() == (True, ["sound", "moody"])
    assert not project.step().has_passed
    mood.unlink()
    assert project.run() == (True, ["moody"])
    assert project.step().has_passed


def test_step_does_not_count_if_its_files_change_meanwhile(project):
    file = project.root / "tests" / "test_tiny.py"
    file.write_text(TESTS + CHANGES_ITSELF)
    assert project.run() == (False, ["sound", "moody"])
    file.write_text(TESTS + CHANGES_ITSELF)
    assert project.run() == (False, ["sound", "moody"])


def test_step_interrupted_after_a_change_keeps_no_result(project, monkeypatch):
    status_of = project.deep.status_of

    def interrupted(command, output):
        status_of(command, output)
        (project.root / "tests" / "new.py").write_text("")
        raise KeyboardInterrupt

    monkeypatch.setattr(project.deep, "status_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        project.run()
    (project.root / "tests" / "new.py").unlink()
    monkeypatch.undo()
    assert not list((project.root / "build").glob("deep/*/*/tests-*"))


def test_step_that_fails_without_a_failed_test_runs_all_again(project):
    conftest = project.root / "tests" / "conftest.py"
    conftest.write_text(FAILS_AT_ITS_END)
    assert project.run() == (True, ["sound", "moody"])
    assert project.run() == (True, ["sound", "moody"])
    assert not project.step().has_passed


DRIVER = """
import pathlib, sys
from script_module import load

deep = load("deep")
deep.ROOT, deep.RESULTS = pathlib.Path("."), pathlib.Path("build/deep")
deep.PARTS = {"tiny": deep.Part(files=("tests",), scripts={"script": ("bash", "tests/script")})}
deep.main()
"""
SCRIPT = """
trap 'exit 130' INT
python tests/child.py || true
sleep 60
"""
CHILD = """
import pathlib, signal

try:
    print("begun", flush=True)
    signal.pause()
finally:
    pathlib.Path("build/ended").touch()
"""


@pytest.mark.parametrize("ignored", ["", "trap '' INT; "], ids=["", "in the background"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_script_that_is_stopped_ends_with_its_children(project, number, ignored):
    """A script that is stopped ends with its children.

    Scripts, such as those of the part `clients`, have a pytest as their child.
    """
    build = project.root / "build"
    (project.root / "tests" / "script").write_text(SCRIPT)
    (project.root / "tests" / "child.py").write_text(CHILD)
    (build / "driver.py").write_text(DRIVER)
    driver = subprocess.Popen(
        ["sh", "-c", f"{ignored}exec {sys.executable} build/driver.py"],
        cwd=project.root,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with driver:
        assert "begun\n" in driver.stdout  # reads up to this line
        driver.send_signal(number)
        driver.wait(20)
    assert (build / "ended").exists()
