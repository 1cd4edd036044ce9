"""Test which PySpark is accepted.

One that is too old is refused at import. A missing one is reported only when it is needed.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rink

SITE = Path(rink.__file__).parents[1]


def run(code, *folders):
    path = os.pathsep.join(map(str, [*folders, SITE]))
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        check=False, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.fixture
def old(tmp_path):
    """Make a folder with the files of PySpark 3.5; importing it fails."""
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text("raise ImportError('imported')")
    (tmp_path / "pyspark" / "version.py").write_text("__version__: str = '3.5.9'\n")
    (tmp_path / "pyspark" / "sql" / "__init__.py").touch()
    return tmp_path


WANTED = "ImportError: rink.spark needs PySpark 4.0 or later, and "


@pytest.mark.parametrize(
    "module", ["rink.spark", "rink.spark.roles", "rink.spark.datasource", "pyspark_rink"]
)
def test_pyspark_3_5_is_refused_at_import(old, module):
    said = run(f"import {module}", old).splitlines()[-1]
    assert said.startswith(WANTED)
    assert f"has PySpark 3.5.9 (in {old / 'pyspark'})" in said
    assert "pip install 'etcd-rink[spark]'" in said


def test_pyspark_3_5_in_a_zip_is_refused_at_import(old, tmp_path):
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for path in (old / "pyspark").rglob("*"):
            made.write(path, path.relative_to(old))
    said = run("import rink.spark", archive).splitlines()[-1]
    assert said.startswith(WANTED)
    assert "3.5.9" in said


def test_pyspark_of_an_unknown_version_is_refused_too(old):
    (old / "pyspark" / "version.py").unlink()
    assert "has PySpark of an unknown version" in run("import rink.spark", old)


def test_pyspark_with_sources_is_not_imported_by_the_check(old):
    (old / "pyspark" / "sql" / "datasource.py").touch()
    code = "import sys, rink.spark; assert 'pyspark' not in sys.modules; print('fine')"
    assert run(code, old) == "fine\n"


def test_without_pyspark_what_needs_none_is_imported():
    code = (
        "import sys; sys.modules['pyspark'] = None; import rink.spark, "
        "rink.spark.roles.rank_arrays\n"
        "from rink.spark import JobRunner"
    )
    said = run(code).splitlines()[-1]
    assert said == (
        "ModuleNotFoundError: rink.spark.JobRunner needs pyspark: pip install 'etcd-rink[spark]'"
    )


def test_source_whose_modules_are_missing_is_there_and_says_so():
    code = (
        "import sys; sys.modules['redis'] = None; import pyspark_rink as found\n"
        "print(found.DefaultSource.name())\nfound.DefaultSource({})"
    )
    said = run(code).splitlines()
    assert said[0] == "rink"
    assert said[-1].startswith('ImportError: format("rink") cannot be imported by ')
    assert "redis" in said[-1]
    assert said[-1].endswith("Install etcd-rink[spark] there, and any other missing package")
