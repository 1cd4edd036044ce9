"""Keep a value for each process, such as the connections of a guard.

Copies of a guard share what their process made, since a worker unpickles one for each task. A child
keeps what its parent made, and does not touch it: closing it, or letting it be collected, could
write to the parent's connection.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import uuid
import weakref
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, cast

T = TypeVar("T")

_made: dict[tuple[int, str], Any] = {}
_locks: dict[int, threading.Lock] = {}


class PerProcess(Generic[T]):
    """A value that each process makes once; pickled as a name only."""

    def __init__(self, name: str = "") -> None:
        self._name = name or uuid.uuid4().hex

    @classmethod
    def of(cls, *args: Any) -> Self:
        """Return the value that is shared by all callers with the same arguments.

        So a guard that a query's function makes at each start leaves no connections behind. The
        name is a digest, since the arguments may hold a password.
        """
        return cls(hashlib.sha256(pickle.dumps(args)).hexdigest())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name,)

    def get(self, make: Callable[[], T]) -> T:
        """Return this process's value, and make it if needed."""
        pid = os.getpid()
        key = (pid, self._name)
        value = _made.get(key)
        if value is None:
            # A lock for each process, since a fork may copy a lock that a thread of the parent
            # holds.
            with _locks.setdefault(pid, threading.Lock()):
                value = _made.get(key)
                if value is None:
                    value = _made[key] = make()
        return cast("T", value)

    def ends_with(self, owner: object, end: Callable[[T], object] = lambda _: None) -> None:
        """Forget this process's value, and end it, when its owner is collected.

        Copies of the owner make it anew if they need it.
        """

        def ended(own: PerProcess[T]) -> None:
            value = own.take()
            if value is not None:
                end(value)

        weakref.finalize(owner, ended, self).atexit = False

    def take(self) -> T | None:
        """Return this process's value and forget it; None if there is none."""
        return cast("T | None", _made.pop((os.getpid(), self._name), None))
