"""Read and refuse retention settings, and show them to people."""

from datetime import timedelta

import pytest

from rink.errors import ConfigError
from rink.streams import App, Record
from rink.streams.retention import Retention, check_retention
from rink.streams.stream import partition_bounds

DAY = 86_400_000


class Order(Record):
    customer: str


def stream(**given):
    return App("shop").stream("orders", record=Order, partition_by="customer", **given)


@pytest.mark.parametrize(
    ("keep", "ms", "shown"),
    [
        ("7d", 7 * DAY, "7 d"),
        ("2w", 14 * DAY, "14 d"),
        ("12h", DAY // 2, "12 h"),
        ("36h", DAY * 3 // 2, "36 h"),
        ("30m", 1_800_000, "30 min"),
        ("90 s", 90_000, "90 s"),
        ("1.5s", 1500, "1500 ms"),
        (timedelta(days=1, seconds=1), DAY + 1000, "86401 s"),
        (3600, 3_600_000, "1 h"),
        (0.0001, 1, "1 ms"),
        (0, 0, "no time"),
    ],
)
def test_keep_is_a_duration(keep, ms, shown):
    found = stream(keep=keep).retention
    assert found == Retention(ms)
    assert str(found) == shown
    assert bool(found) == (ms > 0)


def test_keep_bytes_go_with_keep_or_alone():
    assert check_retention(None, None) is None
    assert str(check_retention("7d", 5_000_000)) == "7 d or 5,000,000 bytes"
    assert str(stream(keep_bytes=10**9).retention) == "1,000,000,000 bytes"
    assert check_retention(None, 0) == Retention()


@pytest.mark.parametrize(
    "keep",
    [
        "7",
        "7 days",
        "d",
        "-1d",
        "",
        "1d12h",
        "\u0667d",
        "1e3s",
        -1,
        float("inf"),
        True,
        [],
        timedelta(-1),
    ],
)
def test_keep_that_is_no_duration_is_refused_and_named(keep):
    with pytest.raises(ConfigError, match="keep"):
        stream(keep=keep)


@pytest.mark.parametrize("size", ["1GB", 1.5, -1, True])
def test_keep_bytes_that_is_no_size_is_refused_and_named(size):
    with pytest.raises(ConfigError, match="keep_bytes"):
        stream(keep_bytes=size)


def test_bounds_say_what_scripts_take():
    assert partition_bounds(stream()).args == {"limit": 50_000, "loses": False}
    assert partition_bounds(stream(keep="1s", trim="oldest")).args == {
        "limit": 50_000, "loses": True, "retention": {"ms": 1000, "size": 0},
    }  # fmt: skip
    assert partition_bounds(stream(keep=0)).args["retention"] == {"ms": 0, "size": 0}
