"""Test the name of our distribution, beside another `rink`."""

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rink
from rink.pip_distribution import DISTRIBUTION, install_command, refuse_other_distribution

PACKAGE = Path(rink.__file__).parent
ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["rink-0.2.9.dist-info", "rink-1.egg-info"])
def test_import_beside_other_distribution_raises_import_error(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / "rink").symlink_to(PACKAGE)
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import rink"],
        check=False, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: ")
    for words in (str(tmp_path), repr(DISTRIBUTION), "'rink'", name):
        assert words in last
    assert f"`pip uninstall -y rink {DISTRIBUTION}`, then `pip install {DISTRIBUTION}`" in last


def test_import_beside_own_or_similar_distributions_is_allowed(tmp_path):
    for name in ("etcd_rink-0.1.0.dist-info", "rink_more-1.dist-info", "rink-data", "rink"):
        (tmp_path / name).mkdir()
    refuse_other_distribution(str(tmp_path / "rink"))


def test_import_from_a_zip_file_is_allowed(tmp_path):
    (tmp_path / "rink.zip").touch()
    refuse_other_distribution(str(tmp_path / "rink.zip" / "rink"))


def test_distribution_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert importlib.metadata.version(DISTRIBUTION) == project["version"]
    assert install_command("cli", "streams") == f"pip install '{DISTRIBUTION}[cli,streams]'"
