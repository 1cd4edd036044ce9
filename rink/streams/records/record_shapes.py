"""Make the shape of a record class: conversion and comparison.

cattrs generates the functions for the fields.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cattrs
from cattrs import gen
from cattrs.fns import identity

from rink.streams.records.fields import Field
from rink.streams.records.scalars import Same
from rink.streams.records.shapes import FromJson, Shape, ShapePart, ToJson, brief, whole


def finish(shape: Shape, fields: Sequence[Field], members: Mapping[str, Shape]) -> None:
    """Finish the shape that `unfinished` made of a record class.

    `members` has the shapes of the fields that are sent.
    """
    # The shape is filled in place, since shapes of other types may hold it already (`unfinished`).
    # Generated functions convert the fields that are sent. The comparison also takes the fields
    # that are not sent, since a record that would lose such a value must not be sent. `parts` and
    # `difference` only serve messages, so they may be slow, but must raise no errors.
    [kind] = shape.classes
    dump, load = _generated(shape.hint, members)

    def from_json(plain: Any, _: Any = None) -> Any:
        if plain.__class__ is not dict:
            raise TypeError(f"{brief(plain)} is no object of a {kind.__name__}")
        return load(plain, kind)

    def parts(value: Any) -> Iterable[ShapePart]:
        for name, member in members.items() if value.__class__ is kind else ():
            yield f".{name}", member, getattr(value, name)

    def json_parts(plain: Any) -> Iterable[ShapePart]:
        for name, member in members.items() if isinstance(plain, dict) else ():
            if name in plain:
                yield f".{name}", member, plain[name]

    sames = {
        field.name: members[field.name].same if field.name in members else operator.eq
        for field in fields
    }

    def difference(value: Any, other: Any) -> tuple[str, Any, Any]:
        for name, is_same in sames.items() if value.__class__ is kind else ():
            if not is_same(getattr(value, name), getattr(other, name)):
                return f".{name}", getattr(value, name), getattr(other, name)
        return whole(value, other)

    # `to_json` needs no check of the class, since the comparison finds a subclass. `from_json`
    # needs its check only without a required field. With a required field, a value that is no
    # object fails by itself.
    shape.to_json, shape.same = dump, _comparison(kind, sames)
    shape.from_json = load if any(field.is_required for field in fields) else from_json
    shape.parts, shape.json_parts, shape.difference = parts, json_parts, difference


def _generated(hint: Any, members: Mapping[str, Shape]) -> tuple[ToJson, FromJson]:
    """Return the functions from a record to a dict and back, by cattrs."""
    converter: Any = cattrs.Converter(detailed_validation=False)
    overrides: Any = {
        name: cattrs.override(
            unstruct_hook=identity if member.is_its_json else member.to_json,
            struct_hook=member.from_json,
        )
        for name, member in members.items()
    }
    return (
        gen.make_dict_unstructure_fn(hint, converter, **overrides),
        gen.make_dict_structure_fn(hint, converter, _cattrs_detailed_validation=False, **overrides),
    )


def _comparison(kind: type[Any], sames: Mapping[str, Same]) -> Same:
    """Return a function that compares two records field by field.

    A class's own == may leave fields out.
    """
    # Most fields are compared by ==, all at once.
    plain = [name for name, same in sames.items() if same is operator.eq]
    special = [(name, same) for name, same in sames.items() if same is not operator.eq]
    values_of = operator.attrgetter(*plain) if plain else lambda _: None

    def same_values(value: Any, other: Any) -> bool:
        return value.__class__ is kind and bool(values_of(value) == values_of(other))

    def same(value: Any, other: Any) -> bool:
        if not same_values(value, other):
            return False
        for name, is_same in special:  # noqa: SIM110 - faster, and each sent record comes here
            if not is_same(getattr(value, name), getattr(other, name)):
                return False
        return True

    return same if special else same_values
