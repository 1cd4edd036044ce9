"""Distinguish the members of a union by their JSON."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from rink.streams.records.fields import Field, fields_of, is_record_class
from rink.streams.records.scalars import as_it_is
from rink.streams.records.shapes import ANY_KIND, JSON_SCALARS, Shape, UnfitError, shown

_KINDS = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false",
    list: "an array", dict: "an object", type(None): "null",
}  # fmt: skip


def optional(hint: Any, member: Shape) -> Shape:
    """Return the shape of a type or None."""
    dump, load, same = member.to_json, member.from_json, member.same
    return Shape(
        hint,
        member.kinds | {type(None)},
        (*member.classes, type(None)),
        as_it_is if member.is_its_json else lambda value: None if value is None else dump(value),
        lambda plain, _=None: None if plain is None else load(plain),
        same if same is operator.eq else lambda value, other: value is other or (
            value is not None and other is not None and same(value, other)
        ),
        None if member.values is None else {**member.values, (type(None), None): None},
        parts=lambda value: () if value is None else member.parts(value),
        json_parts=lambda plain: () if plain is None else member.json_parts(plain),
    )  # fmt: skip


def one_of(
    hint: Any, members: tuple[Shape, ...], record_of: Callable[[Any], Shape] | None
) -> Shape:
    """Return the shape of a union whose members JSON can distinguish.

    `record_of` returns the member of a record's JSON. It is None with fewer than two records.
    """
    # The invariant: a value and its JSON choose the same member, so a value comes back by the
    # member that wrote it. The JSON of two members never overlaps (`tell_apart`,
    # `telling_records`), except for values that are their own JSON, which all members treat alike.
    # Both directions prefer a member with few values, then the member of the exact class. Only
    # values may also belong to a member by a base class, since JSON has no subclasses.
    # In Literal["a"] | str, for example, "a" belongs to the literal.
    members = tuple(sorted(members, key=lambda member: member.values is None))
    unbounded = [member for member in members if member.values is None]
    by_value = {pair: member for member in members for pair in member.values or ()}
    by_kind = {kind: member for member in unbounded for kind in member.kinds}
    by_class = {kind: member for member in unbounded for kind in member.classes}
    # A whole number is a float if no member is an int.
    for table in (by_kind, by_class):
        if float in table:
            table.setdefault(int, table[float])

    def of_value(value: Any) -> Shape:
        for member in members:
            if member.values is None:
                break
            if any(
                known.__class__ is value.__class__ and known == value
                for known in member.values.values()
            ):
                return member
        if (exact := by_class.get(value.__class__)) is not None:
            return exact
        for kind, member in by_class.items():
            if isinstance(value, kind):
                return member
        raise TypeError(f"{value!r} is no {shown(hint)}")

    def of_json(plain: Any) -> Shape:
        kind = plain.__class__
        if kind is dict and record_of is not None:
            return record_of(plain)
        if by_value and kind is not dict and kind is not list and (kind, plain) in by_value:
            return by_value[kind, plain]
        if kind not in by_kind:
            raise TypeError(f"{plain!r} is no {shown(hint)}")
        return by_kind[kind]

    return Shape(
        hint,
        frozenset().union(*(member.kinds for member in members)),
        tuple(kind for member in members for kind in member.classes),
        as_it_is if all(member.is_its_json for member in members)
        else lambda value: of_value(value).to_json(value),
        lambda plain, _=None: of_json(plain).from_json(plain),
        lambda value, other: of_value(value).same(value, other),
        parts=lambda value: of_value(value).parts(value),
        json_parts=lambda plain: of_json(plain).json_parts(plain),
    )  # fmt: skip


def tell_apart(hint: Any, member: Shape, other: Shape) -> None:
    """Refuse two members of a union that may have the same JSON.

    `telling_records` checks two records.
    """
    # Two members are fine in three cases, the cheapest first. They share no class of JSON. Or each
    # value is its own JSON, so its class shows the member (not for Any, which takes all). Or both
    # have few values, and no value in common. In every other case one JSON may have two meanings.
    if is_record_class(member.hint) and is_record_class(other.hint):
        return
    both = member.kinds & other.kinds
    are_their_json = member.is_its_json and other.is_its_json
    if not both or (are_their_json and ANY_KIND not in (member.kinds, other.kinds)):
        return
    if (
        member.values is not None
        and other.values is not None
        and member.values.keys().isdisjoint(other.values.keys())
    ):
        return
    kind = min((_KINDS[json_class] for json_class in both), key=str)
    raise UnfitError(
        f"{_written(hint)}, and JSON has {kind} for {shown(member.hint)} as well as for "
        f"{shown(other.hint)}: what is read could be either. Use one type, or a field for each"
    )


def _written(hint: Any) -> str:
    return " | ".join(shown(arg) for arg in get_args(hint)).replace("NoneType", "None")


def telling_records(hint: Any, members: list[Shape]) -> Callable[[Any], Shape]:
    """Return a function from the JSON of a record to its member.

    The function reads a literal field, or looks for a field that only one record has.

    Raises:
        UnfitError: JSON cannot distinguish the records.
    """
    # A literal field is preferred, since it shows the record by one lookup. Otherwise each record
    # except one must have a required field of its own, which is in the JSON of no other record. So
    # at most one own field is found. Without any, the JSON belongs to the remaining record.
    fields = {member.hint: fields_of(member.hint) for member in members}
    for tag in fields[members[0].hint]:
        if table := _by_tag(tag.name, members, fields):
            return _by_table(hint, tag.name, table)
    own: list[tuple[str, Shape]] = []
    rest: list[Shape] = []
    for member in members:
        others = {
            field.name for other in members if other is not member for field in fields[other.hint]
        }
        names = [
            field.name
            for field in fields[member.hint]
            if field.is_required and field.name not in others
        ]
        if names:
            own.append((names[0], member))
        else:
            rest.append(member)
    if len(rest) > 1:
        records = " from ".join(shown(member.hint) for member in rest)
        raise UnfitError(
            f"{_written(hint)}, and JSON does not tell {records}: give each a field such as "
            'kind: Literal["paid"] = "paid", or a field without a default that no other has'
        )

    def record_of(plain: Any) -> Shape:
        for name, member in own:
            if name in plain:
                return member
        if rest:
            return rest[0]
        raise ValueError(f"has none of the fields {[name for name, _ in own]}")

    return record_of


def _by_tag(
    name: str, members: list[Shape], fields: Mapping[Any, tuple[Field, ...]]
) -> dict[Any, Shape]:
    """Return the member for each value of a literal field, or {}."""
    table: dict[Any, Shape] = {}
    for member in members:
        hints = [
            field.hint for field in fields[member.hint] if field.name == name and field.is_sent
        ]
        if not hints or get_origin(hints[0]) is not Literal:
            return {}
        for value in get_args(hints[0]):
            plain = value.value if isinstance(value, enum.Enum) else value
            if (plain.__class__, plain) in table:
                return {}
            table[plain.__class__, plain] = member
    return table


def _by_table(hint: Any, name: str, table: Mapping[Any, Shape]) -> Callable[[Any], Shape]:
    def record_of(plain: Any) -> Shape:
        value = plain.get(name)
        if value.__class__ not in JSON_SCALARS or (value.__class__, value) not in table:
            raise ValueError(f"has {name}={value!r}, which no record of {_written(hint)} has")
        return table[value.__class__, value]

    return record_of
