"""Convert values of each type to JSON, and check that they come back.

A shape is made for each type when a stream is declared. A type is refused then if its values could
come back as other values: two members of a union with the same JSON, keys of a dict that are no
text, or a class without a known form in JSON. So `send` only has to compare values. It finds a list
in place of an annotated tuple, or an instance of a subclass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from rink.plural import plural
from rink.streams.records.scalars import Same, as_it_is

ToJson = Callable[[Any], Any]
FromJson = Callable[..., Any]
"""A function of the JSON; cattrs also passes the type."""

ShapePart = tuple[str, "Shape", Any]
"""A part of a value or of its JSON: its place, its shape, and the part itself."""

MAX_SHOWN = 300

JSON_SCALARS: tuple[type, ...] = (str, int, float, bool, type(None))
ANY_KIND: frozenset[type] = frozenset({str, int, float, bool, list, dict, type(None)})


def _no_parts(_: Any) -> Iterable[ShapePart]:
    return ()


def whole(value: Any, other: Any) -> tuple[str, Any, Any]:
    """Return two values that differ as a whole."""
    return "", value, other


@attrs.define(eq=False)
class Shape:
    """Convert values of one type to JSON and back.

    Attributes:
        hint: the type, as annotated.
        kinds: the classes that its JSON has in Python: str, int, float, bool, list, dict, NoneType.
        classes: the classes of its values.
        to_json: makes the JSON of a value; raises if there is none.
        from_json: makes a value of JSON; raises if the JSON is of another form.
        same: compares the value that was read with the value that was written.
        values: all possible JSON, as pairs of class and value; None if there is no bound.
        parts: lists the parts of a value, for messages.
        json_parts: lists the parts of its JSON, for messages.
        difference: finds where the value that was read differs, for messages.
    """

    hint: Any
    kinds: frozenset[type]
    classes: tuple[type, ...]
    to_json: ToJson = as_it_is
    from_json: FromJson = as_it_is
    same: Same = operator.eq
    values: Mapping[tuple[type, Any], Any] | None = None
    parts: Callable[[Any], Iterable[ShapePart]] = _no_parts
    json_parts: Callable[[Any], Iterable[ShapePart]] = _no_parts
    difference: Callable[[Any, Any], tuple[str, Any, Any]] = whole

    @property
    def is_its_json(self) -> bool:
        """Return whether each value is its own JSON."""
        return self.to_json is as_it_is


def unfinished(hint: Any, kind: type, classes: tuple[type, ...]) -> Shape:
    """Return a shape that may be part of itself.

    Other shapes may take its functions before these are set. So each function looks up its
    replacement when it is called.
    """
    shape = Shape(hint, frozenset({kind}), classes)
    shape.to_json = lambda value: shape.to_json(value)  # noqa: PLW0108 - replaced by then
    shape.from_json = lambda value, _=None: shape.from_json(value)
    shape.same = lambda value, other: shape.same(value, other)  # noqa: PLW0108 - replaced by then
    shape.parts = lambda value: shape.parts(value)  # noqa: PLW0108 - replaced by then
    shape.json_parts = lambda value: shape.json_parts(value)  # noqa: PLW0108 - replaced by then
    return shape


def shown(hint: Any) -> str:
    """Return the text of a type, as users write it."""
    return hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)


# ── containers ───────────────────────────────────────────────────────────────────────────────


def many(hint: Any, kind: Any, element: Shape) -> Shape:
    """Return the shape of a list, set, frozenset, or tuple of any length."""
    dump, load, same = element.to_json, element.from_json, element.same

    def to_json(value: Any) -> list[Any]:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return list(value) if dump is as_it_is else [dump(item) for item in value]

    def from_json(plain: Any, _: Any = None) -> Any:
        if plain.__class__ is not list:
            raise TypeError(f"{plain!r} is no array of a {kind.__name__}")
        items = plain if load is as_it_is else [load(item) for item in plain]
        return items if kind is list else kind(items)

    def same_in_order(value: Any, other: Any) -> bool:
        return is_of(value, kind) and len(value) == len(other) and all(map(same, value, other))

    def same_as_whole(value: Any, other: Any) -> bool:
        return is_of(value, kind) and value == other

    is_ordered = kind in (list, tuple) and same is not operator.eq
    return Shape(
        hint, frozenset({list}), (kind,), to_json, from_json,
        same_in_order if is_ordered else same_as_whole,
        parts=lambda value: _numbered(element, value) if isinstance(value, kind) else (),
        json_parts=lambda plain: _numbered(element, plain) if isinstance(plain, list) else (),
    )  # fmt: skip


def is_of(value: Any, kind: Any) -> bool:
    """Return whether a value may come back as this class.

    A named tuple may not come back as a tuple.
    """
    return value.__class__ is kind or (isinstance(value, kind) and not hasattr(value, "_fields"))


def _numbered(element: Shape, values: Iterable[Any]) -> Iterable[ShapePart]:
    return ((f"[{at}]", element, value) for at, value in enumerate(values))


def counted(hint: Any, kind: type, elements: tuple[Shape, ...], needed: int) -> Shape:
    """Return the shape of a tuple of a fixed length, named or not.

    The last values of a named tuple may have defaults.
    """
    dumps = [element.to_json for element in elements]
    loads = [element.from_json for element in elements]
    sames = [element.same for element in elements]
    is_named = kind is not tuple

    def to_json(value: Any) -> list[Any]:
        if not (isinstance(value, kind) if is_named else is_of(value, kind)):
            raise TypeError(f"{value!r} is no {kind.__name__}")
        if len(value) != len(dumps):
            raise ValueError(
                f"{value!r} has {len(value)} {plural(len(value), 'value')}, and {shown(hint)} has "
                f"{len(dumps)}"
            )
        return [dump(item) for dump, item in zip(dumps, value, strict=True)]

    def from_json(plain: Any, _: Any = None) -> Any:
        if plain.__class__ is not list:
            raise TypeError(f"{plain!r} is no array of a {kind.__name__}")
        if not needed <= len(plain) <= len(loads):
            raise ValueError(
                f"{plain!r} has {len(plain)} {plural(len(plain), 'value')}, and {shown(hint)} has "
                f"{len(loads)}"
            )
        items = [load(item) for load, item in zip(loads, plain, strict=False)]
        return kind(*items) if is_named else tuple(items)

    def same(value: Any, other: Any) -> bool:
        return (
            (value.__class__ is kind or is_of(value, kind))
            and len(value) == len(other)
            and all(same(a, b) for same, a, b in zip(sames, value, other, strict=True))
        )

    def parts(value: Any) -> Iterable[ShapePart]:
        values = value if isinstance(value, tuple | list) else ()
        pairs = zip(elements, values, strict=False)
        return ((f"[{at}]", element, item) for at, (element, item) in enumerate(pairs))

    return Shape(
        hint, frozenset({list}), (kind,), to_json, from_json, same, parts=parts, json_parts=parts
    )  # fmt: skip


def keyed(hint: Any, key: Shape, value: Shape) -> Shape:
    """Return the shape of a dict whose keys are text in JSON."""
    dump_key, load_key = key.to_json, key.from_json
    dump, load, same_value = value.to_json, value.from_json, value.same

    def to_json(mapping: Any) -> dict[str, Any]:
        if not isinstance(mapping, Mapping):
            raise TypeError(f"{mapping!r} is no dict")
        return {dump_key(name): dump(item) for name, item in mapping.items()}

    def from_json(plain: Any, _: Any = None) -> dict[Any, Any]:
        if plain.__class__ is not dict:
            raise TypeError(f"{plain!r} is no object of a dict")
        return {load_key(name): load(item) for name, item in plain.items()}

    def same(mapping: Any, other: Any) -> bool:
        return len(mapping) == len(other) and all(
            name in other and same_value(each, other[name]) for name, each in mapping.items()
        )

    def parts(mapping: Any) -> Iterable[ShapePart]:
        for name, item in mapping.items() if isinstance(mapping, Mapping) else ():
            yield f"[{name!r}]", key, name
            yield f"[{name!r}]", value, item

    return Shape(
        hint, frozenset({dict}), (dict, Mapping), to_json, from_json, same,
        parts=parts, json_parts=parts,
    )  # fmt: skip


def typed_dict(hint: Any, members: Mapping[str, Shape], required: frozenset[str]) -> Shape:
    """Return the shape of a TypedDict."""

    def to_json(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is no {shown(hint)}")
        return {
            name: members[name].to_json(item) for name, item in value.items() if name in members
        }

    def from_json(plain: Any, _: Any = None) -> dict[str, Any]:
        if plain.__class__ is not dict:
            raise TypeError(f"{plain!r} is no object of a {shown(hint)}")
        if missing := sorted(required - plain.keys()):
            raise ValueError(f"required field {missing[0]!r} is missing")
        return {
            name: member.from_json(plain[name]) for name, member in members.items() if name in plain
        }

    def same(value: Any, other: Any) -> bool:
        return value.keys() == other.keys() and all(
            members[name].same(each, other[name]) for name, each in value.items()
        )

    def parts(value: Any) -> Iterable[ShapePart]:
        if isinstance(value, dict):
            yield from (
                (f".{name}", member, value[name])
                for name, member in members.items()
                if name in value
            )

    return Shape(
        hint, frozenset({dict}), (dict,), to_json, from_json, same, parts=parts, json_parts=parts
    )  # fmt: skip


def brief(value: object) -> str:
    """Return a short repr of a value for a message; never raise."""
    try:
        text = repr(value)
    except Exception as error:  # an int of thousands of digits has none
        return f"a {type(value).__name__} (its repr raised {type(error).__name__})"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


class UnfitError(Exception):
    """A type cannot be used; `below` adds the path to it."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.path = path

    def below(self, step: str) -> UnfitError:
        """Return the error with a path that begins one level further up."""
        return UnfitError(self.why, step + self.path)
