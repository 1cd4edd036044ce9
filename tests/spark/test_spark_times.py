"""Test times in options, as Spark's casts to a timestamp read them."""

import pytest

from rink.errors import ConfigError
from rink.spark.times import milliseconds, shown

NOON = 1_767_268_800_000  # 2026-01-01 12:00:00 UTC
DAY = NOON - 12 * 3_600_000


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("0", 0),
        ("1767268800000", NOON),
        (" 1767268800000 ", NOON),
        ("2026-01-01T12:00:00Z", NOON),
        ("2026-01-01 12:00:00+00:00", NOON),
        ("2026-01-01 12:00:00.001 UTC", NOON + 1),
        ("2026-1-1 12:0:0 Z", NOON),
        ("2026-01-01T12:00+00:00", NOON),
        ("2026-01-01 12 UTC", NOON),
        ("2026-01-01 13:00:00+01:00", NOON),
        ("2026-01-01 13:00:00 +1:00", NOON),
        ("2026-01-01 13:00:00 UTC+1", NOON),
        ("2026-01-01 13:00:00 GMT+01:00", NOON),
        ("2026-01-01 13:00:00 Europe/Berlin", NOON),
        ("2026-01-01 13:00:00.000000 Europe/Berlin", NOON),
        ("2026-01-01 12:00:00.999999999Z", NOON + 999),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_time_with_zone_is_read_as_spark_reads_it(text, at):
    assert milliseconds("startingTimestamp", text, "") == at
    assert milliseconds("startingTimestamp", text, "Asia/Tokyo") == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-01 12:00:00", NOON),
        ("2026-01-01 12:00", NOON),
        ("2026-01-01 12", NOON),
        ("2026-01-01", DAY),
        ("2026-1-1", DAY),
        ("2026-01", DAY),
        ("2026-07-01 00:00:00", 1_782_864_000_000),
    ],
)
def test_time_without_zone_is_of_the_option_and_refused_without(text, at):
    assert milliseconds("startingTimestamp", text, "UTC") == at
    hour = 2 if "-07-" in text else 1
    assert milliseconds("startingTimestamp", text, "Europe/Berlin") == at - hour * 3_600_000
    with pytest.raises(ConfigError, match=r"has no time zone.*option timeZone"):
        milliseconds("startingTimestamp", text, "")


def test_time_in_an_hour_that_clocks_repeat_or_skip_is_as_in_java():
    berlin = "Europe/Berlin"
    twice = milliseconds("x", "2026-10-25 02:30:00", berlin)
    assert twice == milliseconds("x", "2026-10-25 00:30:00Z", "")  # the first of the two
    never = milliseconds("x", "2026-03-29 02:30:00", berlin)
    assert never == milliseconds("x", "2026-03-29 01:30:00Z", "")  # as if clocks had gone on


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-13-01", "2026-02-30", "2026-01-01 25:00:00", "26-01-01", "-5", "1e3",
     "²", "12:00", "2026-01-01Z", "9999-12-31 23:59:59 -18:00", "٢٠٢٦-01-01"],
)  # fmt: skip
def test_text_that_is_no_time_is_refused_with_its_option(text):
    with pytest.raises(ConfigError, match="the option endingTimestamp must be milliseconds since"):
        milliseconds("endingTimestamp", text, "UTC")


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "+19:00", "+1:2:3:4", "../etc/passwd", "PST8X", "BST"]
)
def test_zone_that_is_not_known_is_refused(zone):
    told = r"the option {} names the time zone .*Europe/Berlin"
    with pytest.raises(ConfigError, match=told.format("timeZone")):
        milliseconds("x", "2026-01-01 00:00:00", zone)
    if zone[0] != ".":
        with pytest.raises(ConfigError, match=told.format("x")):
            milliseconds("x", f"2026-01-01 00:00:00 {zone}", "UTC")


def test_time_before_1970_is_refused():
    with pytest.raises(ConfigError, match="no event is older than 1970"):
        milliseconds("x", "1969-12-31 23:59:59 UTC", "")


def test_shown_time_is_utc_and_a_number_beyond_the_calendar():
    assert shown(NOON + 1) == "2026-01-01 12:00:00.001000+00:00"
    assert shown(10**18) == f"{10**18} ms since 1970"


@pytest.mark.parametrize("seconds", ["1000000000", "1767225600", "01767225600", "9999999999"])
def test_seconds_are_refused_with_the_milliseconds_they_are(seconds):
    """`int(time.time())` would be in January 1970, and so read everything."""
    with pytest.raises(ConfigError, match=f"looks like seconds: give {seconds}000"):
        milliseconds("startingTimestamp", seconds, "")
    assert milliseconds("startingTimestamp", f"{seconds}000", "") == int(seconds) * 1000


@pytest.mark.parametrize("year", ["2009", "2026", " 2199 "])
def test_year_alone_is_refused_since_it_would_be_milliseconds(year):
    """Spark casts it to the year's first day; as milliseconds it is 1970."""
    with pytest.raises(ConfigError, match=f"looks like a year: give {year.strip()}-01-01"):
        milliseconds("startingTimestamp", year, "UTC")


@pytest.mark.parametrize("text", ["0", "2008", "2200", "999999999", "10000000000"])
def test_milliseconds_of_other_lengths_are_taken(text):
    assert milliseconds("startingTimestamp", text, "") == int(text)
