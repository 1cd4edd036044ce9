"""Make the shapes of types when a stream is declared.

A type is refused if it is unknown, or if JSON cannot distinguish it from another member of its
union.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Container, Iterable, Mapping, MutableMapping
from typing import Annotated, Any, Final, Literal, NewType, get_args, get_origin

from rink.errors import ConfigError
from rink.streams.records import shapes, unions
from rink.streams.records.fields import fields_of, is_record_class, not_given_by_fields
from rink.streams.records.record_shapes import finish
from rink.streams.records.scalars import SCALARS, as_it_is
from rink.streams.records.shapes import ANY_KIND, JSON_SCALARS, Shape, UnfitError, shown

Hooks = Mapping[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]]
"""Two functions for each type of the user: from a value to JSON, and from JSON to a value."""

_MANY: dict[Any, type] = {list: list, tuple: tuple, set: set, frozenset: frozenset}
_DICTS = (dict, Mapping, MutableMapping)
_UNIONS = (typing.Union, types.UnionType)


def shape_of_record(record: Any, hooks: Hooks) -> Shape:
    """Return the shape of a record class.

    Raises:
        ConfigError: the class is no record class, or the type of a field cannot be used. The
            message names the field.
    """
    if not is_record_class(record):
        raise ConfigError(
            f"{record!r} is no record: subclass rink.streams.Record, or give a dataclass or an "
            "attrs class; for a class of pydantic or msgspec give the stream a codec of your own"
        )
    try:
        return _Declaring(_checked(hooks)).of(record)
    except UnfitError as error:
        field = (
            f"field {error.path.lstrip('.')!r} of {shown(record)}" if error.path else shown(record)
        )
        raise ConfigError(f"{field} is {error.why}") from None


def _checked(hooks: Any) -> Hooks:
    pairs: Any = hooks.items() if isinstance(hooks, Mapping) else [(hooks, None)]
    for kind, pair in pairs:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not all(callable(function) for function in pair):
            raise ConfigError(
                "hooks are a dict of a type and two functions, {Path: (str, Path)}: one that makes "
                f"JSON of a value, and one that makes a value of JSON; not {kind!r}: {pair!r}"
            )
    checked: Hooks = hooks
    return checked


class _Declaring:
    """Make the shapes of one record class."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._records: dict[Any, Shape] = {}

    def of(self, hint: Any) -> Shape:
        hint = stripped(hint, self._hooks)
        if _is_hashable(hint) and hint in self._hooks:
            return _hooked(hint, *self._hooks[hint])
        if hint is Any:
            return Shape(hint, ANY_KIND, (object,))
        if hint is None or hint is type(None):
            return _finite(hint, {(type(None), None): None})
        if _is_hashable(hint) and hint in SCALARS:
            scalar = SCALARS[hint]
            return Shape(
                hint, frozenset({scalar.kind}), (hint,),
                scalar.to_json, scalar.from_json, scalar.same,
            )  # fmt: skip
        if get_origin(hint) is Literal:
            return self._literal(hint)
        if get_origin(hint) in _UNIONS:
            return self._union(hint)
        if is_record_class(hint):
            return self._record(hint)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _enum(hint)
        return self._container(hint, get_origin(hint) or hint, get_args(hint))

    def _below(self, step: str, hint: Any) -> Shape:
        try:
            return self.of(hint)
        except UnfitError as error:
            raise error.below(step) from None

    def _container(self, hint: Any, origin: Any, args: tuple[Any, ...]) -> Shape:
        if typing.is_typeddict(origin):
            return self._typed_dict(hint, origin)
        if isinstance(origin, type) and issubclass(origin, tuple) and hasattr(origin, "_fields"):
            return self._named_tuple(hint, origin)
        is_bare = not args and hint != tuple[()]
        if origin is tuple and not is_bare and Ellipsis not in args:
            elements = tuple(self._below(f"[{at}]", arg) for at, arg in enumerate(args))
            return shapes.counted(hint, tuple, elements, len(elements))
        if origin in _MANY:
            return shapes.many(hint, _MANY[origin], self._below("[]", Any if is_bare else args[0]))
        if origin in _DICTS:
            key, value = (str, Any) if is_bare else args
            keys = self._below("[]", key)
            if keys.kinds != {str}:
                raise UnfitError(
                    f"{shown(hint)}: the keys of a JSON object are text, and those of {shown(key)} "
                    "are not"
                )
            return shapes.keyed(hint, keys, self._below("[]", value))
        raise UnfitError(_unknown(hint, origin))

    def _named_tuple(self, hint: Any, kind: Any) -> Shape:
        hints = typing.get_type_hints(kind, include_extras=True)
        elements = [self._below(f".{name}", hints.get(name, Any)) for name in kind._fields]
        needed = len(elements) - len(kind._field_defaults)
        return shapes.counted(hint, kind, tuple(elements), needed)

    def _typed_dict(self, hint: Any, kind: Any) -> Shape:
        hints = typing.get_type_hints(kind, include_extras=True)
        members = {name: self._below(f".{name}", member) for name, member in hints.items()}
        return shapes.typed_dict(hint, members, kind.__required_keys__)

    # ── records ──────────────────────────────────────────────────────────────────────────────

    def _record(self, hint: Any) -> Shape:
        if hint in self._records:
            return self._records[hint]
        plain = get_origin(hint) or hint
        shape = self._records[hint] = shapes.unfinished(hint, dict, (plain,))
        if argument := not_given_by_fields(plain):
            raise UnfitError(
                f"{shown(hint)}, whose constructor needs {argument!r} beside its fields"
            )
        fields = fields_of(hint)
        members = {
            field.name: self._below(f".{field.name}", field.hint)
            for field in fields
            if field.is_sent
        }
        finish(shape, fields, members)
        return shape

    # ── unions ───────────────────────────────────────────────────────────────────────────────

    def _literal(self, hint: Any) -> Shape:
        values: dict[Any, Any] = {}
        for value in get_args(hint):
            plain = value.value if isinstance(value, enum.Enum) else value
            if plain.__class__ not in JSON_SCALARS:
                raise UnfitError(f"{hint}, and JSON has no {value!r}")
            if (plain.__class__, plain) in values:
                raise UnfitError(f"{hint}, and JSON has {plain!r} for two of them")
            values[plain.__class__, plain] = value
        return _finite(hint, values)

    def _union(self, hint: Any) -> Shape:
        args = [arg for arg in get_args(hint) if arg is not type(None)]
        if Any in args:
            return self.of(Any)
        members = tuple(self.of(arg) for arg in args)
        for at, member in enumerate(members):
            for other in members[at + 1 :]:
                unions.tell_apart(hint, member, other)
        records = [member for member in members if is_record_class(member.hint)]
        record_of = unions.telling_records(hint, records) if len(records) > 1 else None
        union = members[0] if len(members) == 1 else unions.one_of(hint, members, record_of)
        return unions.optional(hint, union) if len(args) < len(get_args(hint)) else union


def stripped(hint: Any, hooks: Container[Any] = ()) -> Any:
    """Return the type behind its names and annotations."""
    while not (_is_hashable(hint) and hint in hooks):
        if isinstance(hint, NewType):
            hint = hint.__supertype__
        elif get_origin(hint) in (Annotated, Final, typing.Required, typing.NotRequired):
            hint = get_args(hint)[0]
        elif type(hint).__name__ == "TypeAliasType":  # `type Name = ...`, from Python 3.12 on
            hint = hint.__value__
        else:
            return hint
    return hint


def _is_hashable(hint: Any) -> bool:
    try:
        hash(hint)
    except TypeError:  # Annotated[int, []], Literal[[]]
        return False
    return True


def _unknown(hint: Any, origin: Any) -> str:
    name = shown(hint)
    is_many = isinstance(origin, type) and issubclass(origin, Iterable)
    if is_many and origin.__module__ == "collections.abc":
        return (
            f"{name}, which does not say which class to make: use list[...] or tuple[..., ...], "
            "for example"
        )
    if isinstance(hint, typing.TypeVar) or bool(getattr(hint, "__parameters__", None)):
        return f"{name}, whose types are not said: give them in brackets, or subclass it with them"
    return (
        f"{name}, which has no known form in JSON: give the stream codec=JsonCodec(..., "
        f"hooks={{{name}: (to_json, from_json)}}), or a codec of your own"
    )


def _hooked(hint: Any, to_json: Callable[[Any], Any], from_json: Callable[[Any], Any]) -> Shape:
    def same(value: Any, other: Any) -> bool:
        if getattr(hint, "__eq__", None) is object.__eq__:  # its == compares identities, not values
            return bool(to_json(value) == to_json(other))
        return bool(value == other)

    classes = (hint,) if isinstance(hint, type) else (object,)
    return Shape(hint, ANY_KIND, classes, to_json, lambda plain, _=None: from_json(plain), same)


def _finite(hint: Any, values: Mapping[tuple[type, Any], Any]) -> Shape:
    """Return the shape of a type with few values, by their JSON.

    A member of an enum may differ from its JSON.
    """
    is_its_json = all(plain is value for (_, plain), value in values.items())

    def to_json(value: Any) -> Any:
        for (_, plain), known in values.items():
            if known is value or (known.__class__ is value.__class__ and known == value):
                return plain
        raise ValueError(f"{value!r} is no {shown(hint)}")

    def from_json(plain: Any, _: Any = None) -> Any:
        if plain.__class__ in JSON_SCALARS and (plain.__class__, plain) in values:
            return values[plain.__class__, plain]
        raise ValueError(f"{plain!r} is no {shown(hint)}")

    return Shape(
        hint,
        frozenset({kind for kind, _ in values}),
        tuple({value.__class__ for value in values.values()}),
        as_it_is if is_its_json else to_json,
        from_json,
        values=values,
    )


def _enum(kind: type[enum.Enum]) -> Shape:
    """Return the shape of an enum, whose JSON is the members' values.

    The class may have members for other values, by `_missing_`.
    """
    values = {(_plain(member.value).__class__, _plain(member.value)): member for member in kind}
    if odd := [member for member in kind if member.value.__class__ not in (str, int, float, bool)]:
        raise UnfitError(
            f"{kind.__name__}, and JSON has no {odd[0].value!r}, the value of {odd[0].name}"
        )
    kinds = frozenset(value_kind for value_kind, _ in values)
    is_flag = issubclass(kind, enum.Flag)

    def to_json(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return value.value

    def from_json(plain: Any, _: Any = None) -> Any:
        if plain.__class__ not in kinds:
            raise TypeError(f"{plain!r} is no {kind.__name__}")
        return kind(plain)

    few = None if is_flag else values
    return Shape(kind, kinds, (kind,), to_json, from_json, values=few)


def _plain(value: Any) -> Any:
    return value if value.__class__ in JSON_SCALARS else repr(value)
