"""Convert single values to JSON: times, numbers, UUIDs, bytes.

msgspec uses the same forms, and so does pydantic with one setting for bytes.
"""

from __future__ import annotations

import operator
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import attrs

Same = Callable[[Any, Any], bool]


@attrs.frozen
class Scalar:
    """Convert a type of single values to JSON and back.

    Attributes:
        to_json: makes JSON of a value; raises if the value is of another type.
        from_json: makes a value of JSON; raises if the JSON has another form. It may get the type
            as a second argument.
        kind: the class of its JSON in Python: str, int, float or bool.
        same: compares the value that was read with the value that was written.
    """

    to_json: Callable[[Any], Any]
    from_json: Callable[..., Any]
    kind: type
    same: Same = operator.eq


def as_it_is(value: Any, _: Any = None) -> Any:
    """Return a value that is its own JSON."""
    return value


def _exactly(kind: type) -> Callable[[Any], Any]:
    def check(value: Any, _: Any = None) -> Any:
        if value.__class__ is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value

    return check


def _real(value: Any, _: Any = None) -> float:
    if value.__class__ is float or value.__class__ is int:
        return float(value)
    raise TypeError(f"{value!r} is no float")


def _text(value: Any, kind: type) -> str:
    if value.__class__ is not str:
        raise TypeError(f"{value!r} is no text that holds a {kind.__name__}")
    return value


def _need(value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")


def _written(kind: type, write: Callable[[Any], str]) -> Callable[[Any], str]:
    def to_json(value: Any) -> str:
        _need(value, kind)
        return write(value)

    return to_json


def _bytes_out(value: Any) -> str:
    _need(value, bytes)
    return b2a_base64(value, newline=False).decode()


def _bytes_in(value: Any, _: Any = None) -> bytes:
    try:
        return a2b_base64(_text(value, bytes), strict_mode=True)
    except ValueError as error:
        raise ValueError(f"is no base64: {error}") from None


def _time_out(value: Any) -> str:
    _need(value, time)
    if value.tzinfo is not None and value.utcoffset() is None:
        raise ValueError(
            f"{value!r} has a zone whose offset depends on the day, and a time has no day"
        )
    return value.isoformat()  # type: ignore[no-any-return]


def _moment_in(value: Any, _: Any = None) -> datetime:
    return datetime.fromisoformat(value)


def _same_moment(at: datetime, other: datetime) -> bool:
    # In the hour that a clock passes twice, == is False between any two time zones. So equal texts
    # count as the same moment.
    return (at == other or at.isoformat() == other.isoformat()) and (at.tzinfo is None) == (
        other.tzinfo is None
    )


def _decimal_out(value: Any) -> str:
    _need(value, Decimal)
    if not value.is_finite():
        raise ValueError(f"{value!r} is no number")
    return str(value)


def _decimal_in(value: Any, _: Any = None) -> Decimal:
    try:
        number = Decimal(_text(value, Decimal))
    except InvalidOperation:
        raise ValueError(f"{value!r} is no decimal number") from None
    if not number.is_finite():
        raise ValueError(f"{value!r} is no number")
    return number


_DURATION = re.compile(
    r"(-)?P(?=.)(?:(\d+)W)?(?:(\d+)D)?"
    r"(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?",
    re.ASCII,
)


def _duration_out(value: Any) -> str:
    """Return a duration in ISO 8601, in days and seconds: P1DT0.5S."""
    _need(value, timedelta)
    sign, rest = ("-", -value) if value < timedelta() and value != timedelta.min else ("", value)
    if rest.days < 0:  # timedelta.min has no opposite
        sign, days, seconds, microseconds = "-", -rest.days, 0, 0
    else:
        days, seconds, microseconds = rest.days, rest.seconds, rest.microseconds
    text = f"{seconds}.{microseconds:06}" if microseconds else f"{seconds}"
    return f"{sign}P{days}DT{text}S"


def _duration_in(value: Any, _: Any = None) -> timedelta:
    match = _DURATION.fullmatch(_text(value, timedelta))
    if match is None:
        raise ValueError(f"{value!r} is no duration such as P1DT2H3M4.5S")
    sign, *parts, fraction = match.groups()
    weeks, days, hours, minutes, seconds = (int(part or 0) for part in parts)
    if sign:
        weeks, days, hours, minutes, seconds = -weeks, -days, -hours, -minutes, -seconds
    microseconds = int((fraction or "0").ljust(6, "0")) * (-1 if sign else 1)
    return timedelta(days, seconds, microseconds, 0, minutes, hours, weeks)


_ISO = operator.methodcaller("isoformat")

SCALARS: dict[Any, Scalar] = {
    # Types of JSON are written as they are. The value is checked when it is read back.
    str: Scalar(as_it_is, _exactly(str), str),
    int: Scalar(as_it_is, _exactly(int), int),
    bool: Scalar(as_it_is, _exactly(bool), bool),
    float: Scalar(as_it_is, _real, float),
    bytes: Scalar(_bytes_out, _bytes_in, str),
    datetime: Scalar(_written(datetime, _ISO), _moment_in, str, _same_moment),
    date: Scalar(
        _written(date, _ISO), lambda value, _=None: date.fromisoformat(_text(value, date)), str
    ),
    time: Scalar(_time_out, lambda value, _=None: time.fromisoformat(_text(value, time)), str),
    timedelta: Scalar(_duration_out, _duration_in, str),
    Decimal: Scalar(_decimal_out, _decimal_in, str),
    UUID: Scalar(_written(UUID, str), lambda value, _=None: UUID(_text(value, UUID)), str),
}  # fmt: skip
