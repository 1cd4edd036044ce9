"""Roles from files, and a Spark session for a command: what `rink plan --spark` runs on.

A library's user has a session and DataFrames; nothing here is needed then.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rink.errors import ConfigError, RinkError, StateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
"""Which format a file's name says; a directory without one of these is of Parquet."""

_LOOK_S = 0.2


def format_of(path: str) -> str:
    """The format of a file or directory, by its name.

    Raises:
        ConfigError: It does not exist, or its name says no format that is read here.
    """
    is_local = "://" not in path
    if is_local and not Path(path).exists():
        raise ConfigError(f"there is no file {path!r}")
    ending = Path(path.removesuffix(".gz")).suffix.lower()
    if ending in FORMATS:
        return FORMATS[ending]
    if ending and not (is_local and Path(path).is_dir()):
        raise ConfigError(
            f"what kind of file {path!r} is cannot be told: it ends in none of {', '.join(FORMATS)}"
        )
    return "parquet"


def read(spark: SparkSession, path: str, role: str) -> DataFrame:
    """Open a file of roles; nothing is read but its head.

    CSV has its columns' names in the first line. Of JSON, one object a line, only the column of
    roles is looked at, as text; where no line has it, every role is null.

    Raises:
        ConfigError: As for `format_of`.
        StateError: Spark cannot read it.
    """
    kind = format_of(path)
    if "://" not in path:
        path = Path(path).resolve().as_uri()
    with told(f"{path} cannot be read"):
        reader = spark.read
        if kind == "csv":
            return reader.option("header", True).csv(path)
        if kind == "json":
            from pyspark.sql.types import StringType, StructField, StructType

            return reader.schema(StructType([StructField(role, StringType())])).json(path)
        return reader.parquet(path)


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Have an error of Spark's say what could not be done, and why in one line.

    Raises:
        StateError: In place of any error of Spark's.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise StateError(f"{what}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """The line that says it: of a traceback in a worker the last, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("rink.")]
    return (ours or lines or [type(error).__name__])[0]


@contextlib.contextmanager
def session(master: str | None = None, name: str = "rink plan") -> Iterator[SparkSession]:
    """Have a session: the one of this process, or a new one that ends with the `with`.

    Args:
        master: Where it runs, as for Spark; a URL `sc://…` is Spark Connect. None is SPARK_REMOTE,
            else all cores of this machine.
        name: What it is called there.

    Raises:
        RinkError: There is no Java for it, or Spark does not start; its last words are in the text.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None:
        yield active
        return
    # Or workers run the python3 of the PATH, which may know neither rink nor NumPy.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remote = master if master and master.startswith("sc://") else None
    if not (remote or (master is None and os.environ.get("SPARK_REMOTE"))):
        _check_java()
    builder = SparkSession.builder.appName(name)
    if remote:
        builder = builder.remote(remote)
    elif master or not os.environ.get("SPARK_REMOTE"):
        os.environ.pop("SPARK_REMOTE", None)  # what was asked for counts
        builder = builder.master(master or "local[*]")
        for key, value in _SETTINGS.items():
            builder = builder.config(key, value)
    with tempfile.TemporaryFile() as said:
        try:
            with _stderr_into(said):
                made = builder.getOrCreate()
        except Exception as error:
            said.seek(0)
            words = said.read().decode(errors="replace").strip().splitlines()
            last = f" ({words[-1].strip()})" if words else ""
            raise RinkError(f"Spark does not start: {_reason(error)}{last}") from error
        try:
            yield made
        finally:
            made.stop()


_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "8",  # what is shuffled are counts
}


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if not shutil.which("java", path=str(Path(home) / "bin") if home else None):
        where = f"JAVA_HOME, {home!r}, has no bin/java" if home else "there is no java in the PATH"
        raise RinkError(
            f"Spark needs Java 17 or later, and {where}: install one (on Debian: apt install "
            f"openjdk-17-jre-headless), or name a Spark Connect server by SPARK_REMOTE"
        )


@contextlib.contextmanager
def _stderr_into(file: IO[bytes]) -> Iterator[None]:
    """Let a JVM that is started write its log to a file: it goes on to write wherever it began to."""
    sys.stderr.flush()
    before = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextlib.contextmanager
def watched(spark: SparkSession, show: Callable[[int, int], None]) -> Iterator[None]:
    """Tell how many tasks of how many have ended, a few times a second, while the body runs.

    Of Spark Connect nothing is told.
    """
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:
        yield  # Connect has no context
        return
    ended = threading.Event()
    looking = threading.Thread(target=_look, args=(tracker, show, ended), daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def _look(tracker: Any, show: Callable[[int, int], None], ended: threading.Event) -> None:
    most = 0
    while not ended.wait(_LOOK_S):
        done = of = 0
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                found = tracker.getStageInfo(stage)
                done += found.numCompletedTasks if found else 0
                of += found.numTasks if found else 0
        if of:
            most = max(most, of)
            show(done, most)
