"""Write records, versions and requests as JSON, and read them as entries.

An unreadable value is never an exception here. It becomes an entry that says so, because the member
must go on. A record of an unknown format claims everything, and a version of an unknown format
stops all grants (R4). Values for people never make a record unreadable. In `labels` and `leads_by`,
entries that this Rink does not know are skipped, as unknown fields are.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import cattrs
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from rink.core import keys
from rink.core.member_record import MemberRecord, Share
from rink.core.values import (
    FORMAT,
    Clutter,
    Entry,
    Member,
    Proclaimed,
    Request,
    RequestEntry,
    Version,
)

MAX_TTL_S = 9_000_000_000
"""The longest lease that etcd grants, in seconds."""

_VERSION_NUMBER = re.compile("[0-9]{16}")

T = TypeVar("T", MemberRecord, Version, Request)


def _strict(value: Any, kind: type) -> Any:
    """Return the value, or raise if it is not of JSON's own type.

    cattrs would turn 1 into "1" and a string into a tuple.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    if isinstance(value, str):
        value.encode()  # a lone surrogate is legal JSON, but not a name
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not finite")  # 1e999 is legal JSON, but not a delay
    return kind(value)


def _names(value: Any, _: Any = None) -> tuple[str, ...]:
    names = tuple(_strict(value, list))
    "".join(names).encode()  # refuse surrogates in all names at once: there may be many
    return names


def _label(value: Any) -> str:
    return str(_strict(value, str))


def _setting(value: Any) -> float | None:
    return None if value is None else float(_strict(value, float))


def _for_people(known: Callable[[Any], Any]) -> Callable[[Any, Any], dict[str, Any]]:
    """Return a reader of a mapping that only people look at.

    It leaves out entries that it cannot read.
    """

    def structure(value: Any, _: Any) -> dict[str, Any]:
        readable = {}
        for name, entry in value.items() if isinstance(value, dict) else ():
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                readable[_label(name)] = known(entry)
        return readable

    return structure


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_converter = cattrs.Converter(omit_if_default=False, forbid_extra_keys=False)
for _kind in (str, int, float):
    _converter.register_structure_hook(_kind, _strict)
_converter.register_structure_hook_func(
    lambda kind: kind == frozenset[str], lambda value, _: frozenset(_names(value))
)
_converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _names)
_converter.register_structure_hook(
    MemberRecord,
    make_dict_structure_fn(
        MemberRecord,
        _converter,
        labels=override(struct_hook=_for_people(_label)),
        leads_by=override(struct_hook=_for_people(_setting)),
    ),
)
_converter.register_structure_hook(
    Version, make_dict_structure_fn(Version, _converter, skipped=override(omit=True))
)
_converter.register_unstructure_hook(
    Version, make_dict_unstructure_fn(Version, _converter, skipped=override(omit=True))
)
_converter.register_unstructure_hook(
    Share,
    lambda share: {
        "rank": share.rank,
        "size": share.size,
        "scheme": share.scheme,
        # Pins are rare: a share without any is written, compared and read in the short form.
        **({"gained": sorted(share.gained)} if share.gained else {}),
        **({"taken": sorted(share.taken)} if share.taken else {}),
    },
)


def encode(value: MemberRecord | Version | Request) -> bytes:
    """Return the JSON of a value, with its format number first."""
    fields = {"format": FORMAT, **_converter.unstructure(value)}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def read(
    root: bytes, key: bytes, value: bytes, create_revision: int, mod_revision: int, lease: int
) -> Entry:
    """Return the entry of the view for one key of a group's range.

    An entry of a known kind that cannot be read has a `problem`, and None as its content. Any other
    key is `Clutter`. So every key of the range gives exactly one entry, and none raises.
    """
    try:
        path = key.removeprefix(root).decode()
    except UnicodeDecodeError:
        return Clutter(repr(key), "not a key that Rink writes")
    kind, _, segment = path.partition("/")
    name = keys.decode_name(segment)
    if kind + "/" == keys.MEMBERS and name is not None:
        record, problem = _read(value, MemberRecord)
        if record is not None and not 0 < record.ttl <= MAX_TTL_S:
            problem = f"has a ttl of {record.ttl} s"
            record = None
        return Member(name, record, create_revision, mod_revision, lease, problem)
    if kind + "/" == keys.VERSIONS and _VERSION_NUMBER.fullmatch(segment) and int(segment):
        version, problem = _read(value, Version)
        if version is not None and (problem := _contradiction(version, int(segment))):
            version = None
        return Proclaimed(int(segment), version, mod_revision, len(value), problem)
    if kind + "/" == keys.REQUESTS and name is not None:
        request, problem = _read(value, Request)
        return RequestEntry(name, request, mod_revision, problem)
    return Clutter(path, "not a key that Rink writes")


def _contradiction(version: Version, number: int) -> str:
    if version.number != number:
        return f"is version {version.number} by its content"
    if len(set(version.ranks)) != len(version.ranks):
        return "ranks one member twice"
    return ""


def _read(value: bytes, kind: type[T]) -> tuple[T | None, str]:
    try:
        fields = json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None, "is not JSON"
    if not isinstance(fields, dict):
        return None, "is not a JSON object"
    if fields.get("format") != FORMAT:
        return None, f"has format {fields.get('format')!r}; this Rink reads format {FORMAT}"
    try:
        return _converter.structure(fields, kind), ""
    except (cattrs.BaseValidationError, TypeError, ValueError, KeyError) as error:
        reasons = cattrs.transform_error(error) if isinstance(error, ExceptionGroup) else [error]
        return None, "cannot be read: " + "; ".join(str(reason) for reason in reasons)
