"""Check that PySpark is new enough, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import PurePath

from rink.pip_distribution import install_command

OLDEST = "4.0"
"""The oldest PySpark that has data sources in Python."""


def check_pyspark() -> None:
    """Refuse a PySpark without data sources in Python.

    Accept a missing PySpark, since `rink.spark.roles.rank_arrays` does not need it. Look only for
    files, since importing PySpark would take half a second.

    Raises:
        ImportError: this PySpark is too old; the message names its version and the needed one.
    """
    spec = find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        return
    of_sql = [str(PurePath(folder, "sql")) for folder in folders]
    if PathFinder.find_spec("pyspark.sql.datasource", of_sql) is not None:
        return
    raise ImportError(
        f"rink.spark needs PySpark {OLDEST} or later, and {sys.executable} has PySpark "
        f"{_version(folders)} (in {folders[0]}). Run `{install_command('spark')}`. A "
        f"platform with a Spark of its own must have Spark {OLDEST} or later",
        name="pyspark",
    )


def _version(folders: Sequence[str]) -> str:
    spec = PathFinder.find_spec("pyspark.version", folders)
    if spec is None or spec.loader is None:
        return "of an unknown version"
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(getattr(module, "__version__", "of an unknown version"))
