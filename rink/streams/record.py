"""Define records: the values of events, as classes of users."""

from __future__ import annotations

from typing import Any, dataclass_transform

import attrs


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attrs.field,))
class Record:
    """A value that streams carry; subclass it and annotate the fields.

        class Order(Record):
            order_id: int
            amount: int = 0

    Subclasses are frozen attrs classes with keyword arguments; `attrs.evolve` makes a changed copy.
    A field added later needs a default, so that events from before can still be read.
    """

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        # Without slots, attrs changes this class itself, and returns no other class.
        attrs.frozen(cls, kw_only=True, slots=False)
