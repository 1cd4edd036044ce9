"""Records to bytes and back. JSON by default; anything with `encode` and `decode` will do."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from enum import EnumMeta
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs.gen import make_hetero_tuple_unstructure_fn
from cattrs.preconf.json import make_converter

from rink.streams.errors import RecordError

R = TypeVar("R")


class Codec(Protocol[R]):
    """How the records of a stream lie in Redis; called on the event loop and in threads."""

    def encode(self, record: R) -> bytes:
        """Return the bytes of a record.

        Raises:
            RecordError: it does not match its class.
        """

    def decode(self, data: bytes) -> R:
        """Return the record of such bytes.

        Raises:
            RecordError: they are none.
        """


class JsonCodec(Generic[R]):
    """A record as a JSON object.

    Unknown fields are ignored and missing ones take their defaults, so that a class may gain and
    lose fields while events of before lie in the stream. Types are checked both ways: "7" is no
    int, and 7.5 is not made 7. NaN and Infinity are not sent: JSON has no such numbers, and what reads it
    elsewhere would fail.
    """

    def __init__(self, record_class: type[R]) -> None:
        if not attrs.has(record_class):
            raise RecordError(f"{record_class!r} is no record: subclass rink.streams.Record")
        self._class: type[Any] = record_class
        self._fast = _strict(make_converter(detailed_validation=False))
        self._telling = _strict(make_converter(detailed_validation=True))
        self._structure: Callable[[Any, type[R]], R] = self._fast.get_structure_hook(record_class)
        self._unstructure: Callable[[R], Any] = self._fast.get_unstructure_hook(record_class)

    def encode(self, record: R) -> bytes:
        """Return the JSON of a record, or raise a RecordError that names what does not match."""
        if not isinstance(record, self._class):
            raise RecordError(
                f"a {type(record).__name__} was given where the stream has {self._class.__name__} records"
            )
        plain: Any = None
        try:
            plain = self._unstructure(record)
            text = _dumps(plain)
            plain = _loads(text)  # as it will be read: JSON has its own ideas of keys
            self._structure(plain, self._class)
            return text.encode()
        except Exception as error:
            raise RecordError(f"{_shown(record)} {self._trouble(plain, error)}") from error

    def decode(self, data: bytes) -> R:
        """Return the record, or raise a RecordError that says what does not match."""
        try:
            plain = _loads(data.decode())
        except ValueError as error:
            raise RecordError(f"{_short(data)} is not JSON: {error}") from error
        try:
            return self._structure(plain, self._class)
        except Exception as error:
            raise RecordError(f"{_short(data)} {self._trouble(plain, error)}") from error

    def _trouble(self, plain: object, error: Exception) -> str:
        if plain is None:  # it did not come so far
            return f"does not match {self._class.__name__}: {error}"
        try:
            self._telling.structure(plain, self._class)
        except cattrs.BaseValidationError as told:
            error_texts = "; ".join(cattrs.transform_error(told))
        except Exception as told:
            error_texts = str(told)
        else:
            error_texts = str(error)
        return f"does not match {self._class.__name__}: {error_texts}"


_DECODER = json.JSONDecoder()


def _loads(text: str) -> Any:
    """As json.loads, without its looks for spaces before and after, of which there are none."""
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _strict(converter: cattrs.Converter) -> cattrs.Converter:
    """Have a converter refuse what Python would bend: "7" for an int, 7.5 for an int, 7 for a str."""
    for kind in (str, bool, int):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _real)
    converter.register_unstructure_hook_factory(_is_counted_tuple, partial(_counted, converter))
    return converter


_ANY_TUPLE: Any = typing.Tuple  # noqa: UP006 - as people write it who began before Python 3.9


def _is_counted_tuple(kind: Any) -> bool:
    """tuple[int, str], and neither tuple[int, ...] nor a NamedTuple, which has as many as it says."""
    return get_origin(kind) is tuple and Ellipsis not in get_args(kind) and kind is not _ANY_TUPLE


def _counted(converter: cattrs.Converter, kind: Any) -> Callable[[Any], Any]:
    """Have a tuple's length checked when it is sent: cattrs would drop what is too much."""
    unstructure = make_hetero_tuple_unstructure_fn(kind, converter, unstructure_to=list)
    wanted = len(get_args(kind))

    def check(value: Any) -> Any:
        if len(value) != wanted:
            raise ValueError(f"{value!r} has {len(value)} values, and {kind} has {wanted}")
        return unstructure(value)

    return check


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    def check(value: Any, wanted: Any) -> Any:
        if value.__class__ is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        # A StrEnum comes here too, being a str.
        return wanted(value) if isinstance(wanted, EnumMeta) else value

    return check


def _real(value: Any, _: Any) -> float:
    if value.__class__ is float or value.__class__ is int:
        return float(value)
    raise TypeError(f"{value!r} is no float")


def _shown(record: object) -> str:
    try:
        return repr(record)
    except Exception as error:  # an int of thousands of digits has none
        return f"a {type(record).__name__} (its repr raised {type(error).__name__})"


def _short(data: bytes) -> str:
    return repr(data if len(data) <= 80 else data[:80] + b"...")
