"""Test our wheel beside another distribution `rink`.

pip installs both into one environment. The other wheel has files of the same names as the one on
PyPI: a package `rink` with a module `rink.cli`, and a command `rink`.
"""

import re
import shlex
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from rink.pip_distribution import DISTRIBUTION

REPOSITORY = Path(__file__).parents[2]
THEIRS = {
    "rink/__init__.py": "NAME = 'theirs'\n",
    "rink/cli.py": "def app():\n    print('theirs')\n",
    "rink-0.2.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: rink\nVersion: 0.2.9\n",
    "rink-0.2.9.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "rink-0.2.9.dist-info/entry_points.txt": "[console_scripts]\nrink = rink.cli:app\n",
}


def call(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)


def done(*command):
    ran = call(*command)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Give our wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("ours")
    done(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(REPOSITORY))
    (wheel,) = folder.glob("etcd_rink-*.whl")
    return wheel


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Give a wheel of another distribution, named `rink`."""
    path = tmp_path_factory.mktemp("theirs") / "rink-0.2.9-py3-none-any.whl"
    record = "rink-0.2.9.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in THEIRS.items():
            wheel.writestr(name, text)
        wheel.writestr(record, "".join(f"{name},,\n" for name in (*THEIRS, record)))
    return path


class Environment:
    """Make an environment that finds Rink's dependencies in the runner's."""

    def __init__(self, folder):
        self._folder = folder
        done(sys.executable, "-m", "venv", "--without-pip", str(folder))
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def pip(self, *arguments):
        python = str(self._folder / "bin" / "python")
        done(sys.executable, "-m", "pip", "--quiet", "--python", python, *arguments)

    def install(self, wheel):
        self.pip("install", "--no-index", "--no-deps", str(wheel))

    def python(self, code):
        return call(str(self._folder / "bin" / "python"), "-c", code)

    def rink(self, *arguments):
        return call(str(self._folder / "bin" / "rink"), *arguments)


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "venv")


def test_ours_installed_last_raises_until_its_command_is_run(environment, ours, theirs):
    environment.install(theirs)
    assert environment.rink().stdout == "theirs\n"
    environment.install(ours)
    for failed in (environment.python("import rink"), environment.rink("--version")):
        error = failed.stderr.splitlines()[-1]
        assert error.startswith("ImportError: two distributions")
        assert f"{DISTRIBUTION!r}, which is Rink, and 'rink' (rink-0.2.9.dist-info)" in error
    uninstall, install = re.findall(r"`pip ([^`]*)`", error)
    environment.pip(*shlex.split(uninstall))
    assert environment.python("import rink").returncode == 1  # nothing is left
    assert install == f"install {DISTRIBUTION}"
    environment.install(ours)
    assert environment.python("import rink; rink.Session").returncode == 0
    assert environment.rink("--version").stdout.startswith("rink, version ")


def test_theirs_installed_last_shows_what_the_page_says(environment, ours, theirs):
    environment.install(ours)
    environment.install(theirs)
    page = (REPOSITORY / "docs" / "installing.md").read_text(encoding="utf-8")
    for failed in (
        environment.python("import rink; rink.Session"),
        environment.python("from rink import Session"),
        environment.rink("--version"),
    ):
        error = failed.stderr.splitlines()[-1].partition(" (/")[0]
        assert f"`{error}`" in page


def test_target_folder_of_both_raises(tmp_path, ours, theirs):
    for wheel in (theirs, ours):
        done(
            sys.executable, "-m", "pip", "--quiet", "install", "--no-index", "--no-deps",
            "--upgrade", "--target", str(tmp_path), str(wheel),
        )  # fmt: skip
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rink"
    failed = call(sys.executable, "-P", "-c", code)
    assert "ImportError: two distributions" in failed.stderr
