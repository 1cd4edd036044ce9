"""Read roles from files, and start Spark, for `rink plan --spark`."""

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
"""The format of each file ending. A directory with another ending has Parquet files."""

_LOOK_INTERVAL_S = 0.2


def format_of(path: str) -> str:
    """Return the format of a file or directory, by its name.

    Raises:
        ConfigError: the file does not exist, or its ending is unknown.
    """
    is_local = "://" not in path
    if is_local and not Path(path).exists():
        raise ConfigError(f"there is no file {path!r}")
    ending = Path(path.removesuffix(".gz")).suffix.lower()
    if ending in FORMATS:
        return FORMATS[ending]
    if ending and not (is_local and Path(path).is_dir()):
        raise ConfigError(
            f"unknown kind of file {path!r}: its name ends in none of {', '.join(FORMATS)}"
        )
    return "parquet"


def read(spark: SparkSession, path: str, role: str) -> DataFrame:
    """Open a file of roles, and read only its head.

    CSV files have the columns' names in the first line. JSON files have one object a line, of which
    only the column of roles is read, as text. A line without this column counts as a null role.

    Raises:
        ConfigError: see `format_of`.
        StateError: Spark cannot read the file.
    """
    kind = format_of(path)
    if "://" not in path:
        path = Path(path).resolve().as_uri()
    with explain_spark_errors(f"{path} cannot be read"):
        reader = spark.read
        if kind == "csv":
            return reader.option("header", True).csv(path)
        if kind == "json":
            from pyspark.sql.types import StringType, StructField, StructType

            return reader.schema(StructType([StructField(role, StringType())])).json(path)
        return reader.parquet(path)


@contextlib.contextmanager
def explain_spark_errors(what: str) -> Iterator[None]:
    """Turn an error of Spark into one line: the failure and its reason.

    Raises:
        StateError: the body raised an error of Spark.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise StateError(f"{what}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return the error's first line, or the line of Rink's error in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("rink.")]
    return (ours or lines or [type(error).__name__])[0]


@contextlib.contextmanager
def session(master: str | None = None, name: str = "rink plan") -> Iterator[SparkSession]:
    """Yield this process's session, or a new session that ends after the body.

    A master `sc://…` is Spark Connect. None is SPARK_REMOTE, or else all cores of this machine.

    Raises:
        RinkError: there is no Java, or Spark does not start. The message has Spark's last line.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None and master is None:
        yield active
        return
    # Otherwise workers run the python3 of the PATH, which may have neither rink nor NumPy.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    remote = master if master and master.startswith("sc://") else None
    if not (remote or (master is None and os.environ.get("SPARK_REMOTE"))):
        _check_java()
    builder = SparkSession.builder.appName(name)
    if remote:
        builder = builder.remote(remote)
    elif master or not os.environ.get("SPARK_REMOTE"):
        os.environ.pop("SPARK_REMOTE", None)  # the argument takes precedence
        builder = builder.master(master or "local[*]")
        for key, value in _SETTINGS.items():
            builder = builder.config(key, value)
    with tempfile.TemporaryFile() as output:
        try:
            with _stderr_into(output):
                spark = builder.getOrCreate()
        except Exception as error:
            output.seek(0)
            words = output.read().decode(errors="replace").strip().splitlines()
            last = f" ({words[-1].strip()})" if words else ""
            raise RinkError(f"Spark does not start: {_reason(error)}{last}") from error
        try:
            yield spark
        finally:
            spark.stop()


_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "8",  # only counts are shuffled
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
    """Redirect stderr into a file while the body runs.

    A JVM that starts in the body keeps writing its log to that file.
    """
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
    """Show the progress of Spark's tasks, a few times a second.

    `show` gets the numbers of ended tasks and of all tasks. Spark Connect reports no progress.
    """
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:
        yield  # Spark Connect has no context
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
    total = 0
    while not ended.wait(_LOOK_INTERVAL_S):
        done = of = 0
        for job in tracker.getActiveJobsIds():
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                progress = tracker.getStageInfo(stage)
                done += progress.numCompletedTasks if progress else 0
                of += progress.numTasks if progress else 0
        if of:
            total = max(total, of)
            show(done, total)
