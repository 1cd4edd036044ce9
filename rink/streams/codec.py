"""Encode records to bytes, and decode them.

The default is JSON. Any object with `encode` and `decode` is a codec.
"""

from __future__ import annotations

import json
from typing import Any, Generic, Protocol, TypeVar, get_origin

from rink.streams.errors import RecordError
from rink.streams.records.shapes import Shape, brief, shown
from rink.streams.records.type_shapes import Hooks, shape_of_record

R = TypeVar("R")


class Codec(Protocol[R]):
    """Encode and decode records, on the event loop and in threads.

    The stream turns all other errors into RecordErrors.
    """

    def encode(self, record: R) -> bytes:
        """Return the bytes of a record.

        Raises:
            RecordError: the record does not match its class.
        """

    def decode(self, data: bytes) -> R:
        """Return the record that `data` encodes.

        Raises:
            RecordError: the bytes are no record.
        """


class JsonCodec(Generic[R]):
    """Encode a record as a JSON object.

    Unknown fields are ignored, and missing fields take their defaults. So a class may gain and lose
    fields while older events lie in the stream. Types are checked both ways: "7" is no int, and 7.5
    is not turned into 7. NaN and Infinity are not sent, since JSON has no such numbers, and other
    readers would fail. Each encoded record is decoded at once and compared. It is not sent if it
    would come back as another record.

    Args:
        record_class: a subclass of `Record`, a dataclass or an attrs class.
        hooks: two functions for each type that is not built in, or whose form is replaced. The
            first turns a value into JSON (text, numbers, lists, dicts with text as keys). The
            second turns JSON into a value.

    Raises:
        ConfigError: the type of a field is unknown, or JSON cannot distinguish two members of a
            union.
    """

    def __init__(self, record_class: type[R], *, hooks: Hooks | None = None) -> None:
        self.record_class = record_class
        self.hooks: Hooks = {} if hooks is None else hooks
        self._name = shown(record_class)
        self._class: type[Any] = get_origin(record_class) or record_class
        self._shape = shape_of_record(record_class, self.hooks)
        # Looked up once, since each send and each event calls them.
        self._to_json = self._shape.to_json
        self._from_json = self._shape.from_json
        self._same = self._shape.same

    def encode(self, record: R) -> bytes:
        """Return the JSON of a record.

        Raises:
            RecordError: the record does not match; the error names the field.
        """
        if record.__class__ is not self._class:
            raise RecordError(self._wrong_class(record))
        try:
            text = _dumps(self._to_json(record))
            if self._same(record, self._from_json(_loads(text))):
                return text.encode()
        except Exception as error:
            why = _why_not_sent(self._shape, record, "$") or _text_of(error)
            raise RecordError(f"{brief(record)} does not match {self._name}: {why}") from error
        why = _why_not_sent(self._shape, record, "$") or "it would come back as another"
        raise RecordError(f"{brief(record)} does not match {self._name}: {why}")

    def decode(self, data: bytes) -> R:
        """Return the record that `data` encodes.

        Raises:
            RecordError: the bytes do not match; the error names the field.
        """
        try:
            plain = _loads(data.decode())
        except ValueError as error:
            raise RecordError(f"{_short(data)} is not JSON: {error}") from error
        try:
            return self._from_json(plain)  # type: ignore[no-any-return]
        except Exception as error:
            why = _why_not_read(self._shape, plain, "$") or _text_of(error)
            raise RecordError(f"{_short(data)} does not match {self._name}: {why}") from error

    def _wrong_class(self, record: object) -> str:
        name = type(record).__name__
        if isinstance(record, self._class):
            return (
                f"a {name} was given where the stream has {self._name} records: it would come back "
                f"as a {self._name}, without its own fields. Send a {self._name}, or declare a "
                f"stream for {name}"
            )
        return f"a {name} was given where the stream has {self._name} records"


def _why_not_sent(shape: Shape, value: Any, path: str) -> str | None:
    """Return the problem of a value, with its innermost place, or None."""
    try:
        for step, part, inner in shape.parts(value):
            if why := _why_not_sent(part, inner, path + step):
                return why
        text = _dumps(shape.to_json(value))
        text.encode()
        back = shape.from_json(_loads(text))
        if shape.same(value, back):
            return None
        step, value, back = shape.difference(value, back)
    except Exception as error:
        is_of_the_type = isinstance(value, shape.classes)
        why = _text_of(error) if is_of_the_type else f"{brief(value)} is no {shown(shape.hint)}"
        return f"{why} @ {path}"
    return f"{brief(value)} would come back as {brief(back)} @ {path}{step}"


def _why_not_read(shape: Shape, plain: Any, path: str) -> str | None:
    if path == "$" and not isinstance(plain, dict):
        return f"{brief(plain)} is no object @ $"
    try:
        for step, part, inner in shape.json_parts(plain):
            if why := _why_not_read(part, inner, path + step):
                return why
        shape.from_json(plain)
    except Exception as error:
        return f"{_text_of(error)} @ {path}"
    return None


def _text_of(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"required field {error} is missing"
    return str(error) or type(error).__name__


_DECODER = json.JSONDecoder()


def _loads(text: str) -> Any:
    """Return the value of a JSON text, faster than `json.loads`.

    Rink writes no spaces around the value. If there are any, `json.loads` handles them.
    """
    try:
        value, end = _DECODER.raw_decode(text)
    except ValueError:
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _short(data: bytes) -> str:
    return repr(data if len(data) <= 80 else data[:80] + b"...")
