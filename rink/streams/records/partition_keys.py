"""Read the partition key of a record."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from rink.errors import ConfigError
from rink.streams.records.fields import field_names
from rink.streams.records.shapes import shown

R = TypeVar("R")

PartitionBy = str | Callable[[R], object]
"""The name of a field or a property, or a function of the record."""


def key_function(partition_by: PartitionBy[Any], record: type[Any]) -> Callable[[Any], object]:
    """Return a function that reads a record's key.

    Raises:
        ConfigError: `partition_by` names no field of the record's class.
    """
    if callable(partition_by):
        return partition_by
    if not partition_by or not isinstance(partition_by, str):
        raise ConfigError(
            f"partition_by must be a field's name or a function of the record, not {partition_by!r}"
        )
    name = partition_by
    fields = field_names(record)
    if fields is not None and name not in fields:
        listed, class_name = ", ".join(fields) or "none", shown(record)
        if inspect.isroutine(getattr(record, name, None)):
            raise ConfigError(
                f"partition_by={name!r} is a method of {class_name}, and not its result: give "
                f"a function, such as lambda record: record.{name}(), or a field: {listed}"
            )
        if not _may_have(record, name):
            raise ConfigError(
                f"partition_by={name!r} is no field of {class_name}, which has {listed}"
            )
    return lambda record: getattr(record, name)


def _may_have(record: type[Any], name: str) -> bool:
    """Return whether instances may have an attribute that is no field.

    Such an attribute is a property, or the class sets it itself.
    """
    setters = ("__attrs_post_init__", "__post_init__")
    # Each model of pydantic has a __getattr__, which adds no attributes.
    adds_attributes = hasattr(record, "__getattr__") and not hasattr(record, "model_fields")
    has_setter = any(hasattr(record, setter) for setter in setters)
    return hasattr(record, name) or adds_attributes or has_setter
