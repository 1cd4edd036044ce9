"""Hold streams to one clock, that of the event loop.

A test in virtual time would not see a wait by another clock end.
"""

import ast
from pathlib import Path

import pytest

import rink

PACKAGE = Path(rink.__file__).parent
FILES = sorted(path for room in ("redis", "streams") for path in (PACKAGE / room).rglob("*.py"))
WALL = {
    ("streams/store/store.py", "time.time_ns"),  # numbers a step, and is never waited for
}


CLOCKS = {
    "time": {
        f"{name}{unit}" for name in ("monotonic", "perf_counter", "time") for unit in ("", "_ns")
    },
    "datetime": {"now", "today", "utcnow"},
}


def readings(path):
    """Yield each use of a clock other than the event loop's."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id="time" | "datetime" as module), attr=name):
                if name in CLOCKS[module]:
                    yield f"{module}.{name}"
            case ast.ImportFrom(module="time", names=names):  # `from time import monotonic`
                yield from (f"time.{one.name}" for one in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_streams_read_no_clock_but_that_of_the_event_loop(path):
    place = str(path.relative_to(PACKAGE))
    assert {(place, reading) for reading in readings(path)} <= WALL


def test_each_exception_is_there():
    found = {(str(path.relative_to(PACKAGE)), one) for path in FILES for one in readings(path)}
    assert found == WALL
