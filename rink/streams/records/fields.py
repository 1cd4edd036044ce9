"""Read the fields of record classes: Record, attrs or dataclasses."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from typing import Any, TypeVar, get_args, get_origin

import attrs

from rink.errors import ConfigError


@attrs.frozen
class Field:
    """Describe one field of a record class.

    Attributes:
        name: the attribute's name, and the key in JSON.
        hint: the annotation, with type variables and text resolved.
        default: the default value or its factory; `attrs.NOTHING` if a value is needed.
        is_sent: the constructor takes the field. Other fields are not in the JSON.
        is_checked: the class has a validator or a converter for the field.
    """

    name: str
    hint: Any
    default: Any
    is_sent: bool
    is_checked: bool

    @property
    def is_required(self) -> bool:
        """Return whether a record cannot be made without this field."""
        return self.is_sent and self.default is attrs.NOTHING


def is_record_class(kind: Any) -> bool:
    """Return whether this is an attrs class or dataclass, generic or not."""
    plain = get_origin(kind) or kind
    return isinstance(plain, type) and (attrs.has(plain) or dataclasses.is_dataclass(plain))


def fields_of(kind: Any) -> tuple[Field, ...]:
    """Return the fields of a record class, in their order.

    Raises:
        ConfigError: this is no record class, or an annotation cannot be resolved.
    """
    plain: Any = get_origin(kind) or kind
    if not is_record_class(plain):
        raise ConfigError(
            f"{plain!r} is no record class: subclass rink.streams.Record, or give a dataclass or "
            "an attrs class"
        )
    try:
        hints = typing.get_type_hints(plain, include_extras=True)
    except Exception as error:  # evaluating an annotation may raise any error
        raise ConfigError(
            f"an annotation of {plain.__name__} cannot be resolved: {error}. Import the name where "
            "the module is loaded (not under TYPE_CHECKING), and declare record classes at the top "
            "of a module"
        ) from error
    arguments = _arguments_of(kind, plain)
    plain_fields: Any = attrs.fields(plain) if attrs.has(plain) else dataclasses.fields(plain)
    return tuple(
        Field(
            name=field.name,
            hint=_resolved(hints.get(field.name, field.type), arguments),
            default=_default_of(field),
            is_sent=field.init,
            is_checked=bool(
                isinstance(field, attrs.Attribute) and (field.validator or field.converter)
            ),
        )
        for field in plain_fields
    )


def not_given_by_fields(kind: type[Any]) -> str | None:
    """Return the first required argument of a constructor that is no field.

    Such an argument is an `InitVar` of a dataclass, or belongs to a constructor of the user.
    """
    names = {field.alias for field in attrs.fields(kind)} if attrs.has(kind) else {
        field.name for field in dataclasses.fields(kind)
    }  # fmt: skip
    for argument in inspect.signature(kind).parameters.values():
        is_needed = argument.default is argument.empty and argument.kind not in (
            argument.VAR_KEYWORD,
            argument.VAR_POSITIONAL,
        )
        if is_needed and argument.name not in names:
            return argument.name
    return None


def field_names(kind: Any) -> tuple[str, ...] | None:
    """Return the names of a class's fields; None if it declares no fields.

    Classes of pydantic and msgspec also declare fields.
    """
    plain: Any = get_origin(kind) or kind
    if is_record_class(plain):
        fields: Any = attrs.fields(plain) if attrs.has(plain) else dataclasses.fields(plain)
        return tuple(field.name for field in fields)
    declared = getattr(plain, "model_fields", getattr(plain, "__struct_fields__", None))
    return None if declared is None else tuple(declared)


def _default_of(field: Any) -> Any:
    if isinstance(field, attrs.Attribute):
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return attrs.Factory(field.default_factory)
    return attrs.NOTHING if field.default is dataclasses.MISSING else field.default


def _arguments_of(kind: Any, plain: Any) -> dict[Any, Any]:
    """Return the types for the variables of a generic class and its bases."""
    arguments = dict(zip(getattr(plain, "__parameters__", ()), get_args(kind), strict=False))
    for ancestor in plain.__mro__:
        for base in vars(ancestor).get("__orig_bases__", ()):
            variables = getattr(get_origin(base), "__parameters__", ())
            for variable, argument in zip(variables, get_args(base), strict=False):
                if argument is not variable:
                    arguments.setdefault(variable, _resolved(argument, arguments))
    return arguments


def _resolved(hint: Any, arguments: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return arguments.get(hint, hint)
    if variables := getattr(hint, "__parameters__", ()):
        if isinstance(hint, type):  # a generic class without its arguments
            return hint
        return hint[tuple(arguments.get(variable, variable) for variable in variables)]
    return hint
