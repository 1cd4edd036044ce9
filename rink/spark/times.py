"""Read times as Spark's casts do, and print them for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rink.errors import ConfigError

_DIGITS_OF_SECONDS = 10
"""The number of digits of a time in seconds since 2001. As milliseconds, such a number would mean a
time before May 1970, so it is refused.
"""
_YEARS = range(2009, 2200)
"""Numbers that look like years, and are refused: Redis was first released in 2009."""
_EPOCH = datetime.fromtimestamp(0, UTC)
_TIME = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[T ](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})"
    r"(?::(?P<second>\d{1,2})(?:[.,](?P<fraction>\d{0,9}))?)?)?"
    r"\s*(?P<zone>[A-Za-z+-].*)?)?)?)?",
    re.ASCII,
)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])"
    r"(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2})(?::?(?P<seconds>\d{2}))?)?",
    re.ASCII,
)


def milliseconds(name: str, text: str, zone: str) -> int:
    """Return the milliseconds since 1970 that an option names.

    Args:
        name: the option's name, for the error.
        text: milliseconds, or a time as `CAST(… AS TIMESTAMP)` takes it. The time of day, or its
            minutes and seconds, may be missing, and a zone may be an offset or a name. Two forms of
            Spark are refused: a time without a day, and zones such as PST or BST, which mean other
            zones in Java (its BST is Dhaka's).
        zone: the zone of a time without a zone; "" refuses such a time.

    Raises:
        ConfigError: the text is no time, lies before 1970, looks like seconds or a year, or has no
            known zone.
    """
    # A text of digits is read as milliseconds only if it can mean nothing else: ten digits would be
    # seconds, four digits would be a year. So no time is silently off by a factor.
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 20:
        if len(str(int(text))) == _DIGITS_OF_SECONDS:
            raise ConfigError(
                f"the option {name} is {text!r}, which is {shown(int(text))} in milliseconds. It "
                f"looks like seconds: give {text}000"
            )
        if len(text) == 4 and int(text) in _YEARS:
            raise ConfigError(
                f"the option {name} is {text!r}, which is {shown(int(text))} in milliseconds. It "
                f"looks like a year: give {text}-01-01"
            )
        return int(text)
    match = _TIME.fullmatch(text)
    if match is None:
        raise _no_time(name, text)
    if not (match["zone"] or zone):
        raise ConfigError(
            f"the option {name} is {text!r}, which has no time zone. A data source in Python "
            f"cannot see the zone of Spark's session. Add the zone ({text} Europe/Berlin, or an "
            "offset such as +01:00), or the option timeZone: "
            '.option("timeZone", spark.conf.get("spark.sql.session.timeZone"))'
        )
    its_zone = zone_of(name, match["zone"]) if match["zone"] else zone_of("timeZone", zone)
    numbers = {part: int(match[part] or 0) for part in ("hour", "minute", "second")}
    micros = int((match["fraction"] or "").ljust(6, "0")[:6])
    try:
        at = datetime(
            int(match["year"]), int(match["month"] or 1), int(match["day"] or 1),
            **numbers, microsecond=micros, tzinfo=its_zone,
        )  # fmt: skip
        since = (at.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        raise _no_time(name, text) from None
    if since < 0:
        raise ConfigError(f"the option {name} is {text!r}: no event is older than 1970")
    return since


def zone_of(name: str, text: str) -> tzinfo:
    """Return the zone that a text such as Z, +01:00 or Europe/Berlin names.

    Raises:
        ConfigError: the text names no zone that this machine knows.
    """
    text = text.strip()
    if text.upper() in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if offset := _OFFSET.fullmatch(text):
        size = timedelta(
            hours=int(offset["hours"]),
            minutes=int(offset["minutes"] or 0),
            seconds=int(offset["seconds"] or 0),
        )
        if size <= timedelta(hours=18):  # Java's limit
            return timezone(size if offset["sign"] == "+" else -size)
    else:
        try:
            return ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise ConfigError(
        f"the option {name} names the time zone {text!r}, which this machine does not know: use "
        "an offset such as +01:00, or a name of the time zone database such as Europe/Berlin "
        "(install tzdata if the machine has no database)"
    )


def shown(ms: int) -> str:
    """Return a time as text in UTC, or as a number beyond the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(sep=" ")
    except OverflowError:
        return f"{ms} ms since 1970"


def _no_time(name: str, text: str) -> ConfigError:
    return ConfigError(
        f"the option {name} must be milliseconds since 1970, or a time as Spark reads it, such as "
        f"2026-01-31 12:00:00 Europe/Berlin or 2026-01-31T12:00:00+01:00, and not {text!r}"
    )
