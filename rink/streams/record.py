"""Define the base class of records, which are the values of events."""

from __future__ import annotations

from typing import Any, dataclass_transform

import attrs


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attrs.field,))
class Record:
    """Hold a value that streams carry; subclass it and annotate the fields.

        class Order(Record):
            order_id: int
            amount: int = 0

    Subclasses are frozen attrs classes with keyword arguments; `attrs.evolve` makes a changed copy.
    A field that is added later needs a default, so that older events can still be read.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        # Without slots, attrs changes this class itself, and does not return another class.
        attrs.frozen(cls, kw_only=True, slots=False)
