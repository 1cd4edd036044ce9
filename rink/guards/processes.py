"""Keep a value for each process, such as the connections of a guard.

All copies of a guard in a process share one value, since a worker unpickles a copy for each task. A
forked child keeps its parent's value, and does not touch it. Closing or collecting that value could
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
    """Hold a value that each process makes once. Only its name is pickled."""

    def __init__(self, name: str = "") -> None:
        self._name = name or uuid.uuid4().hex

    @classmethod
    def of(cls, *args: Any) -> Self:
        """Return the value that all callers with the same arguments share.

        So a query's function may make a new guard at each start without leaking connections. The
        name is a digest, since the arguments may hold a password.
        """
        return cls(hashlib.sha256(pickle.dumps(args)).hexdigest())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name,)

    def get(self, make: Callable[[], T]) -> T:
        """Return this process's value. Make it if there is none."""
        pid = os.getpid()
        key = (pid, self._name)
        value = _made.get(key)
        if value is None:
            # Each process has its own lock, since a fork may copy a lock while a thread of the
            # parent holds it.
            with _locks.setdefault(pid, threading.Lock()):
                value = _made.get(key)
                if value is None:
                    value = _made[key] = make()
        return cast("T", value)

    def ends_with(self, owner: object, end: Callable[[T], object] = lambda _: None) -> None:
        """Take this process's value and end it when its owner is collected.

        Copies of the owner make a new value if they need one.
        """

        def ended(own: PerProcess[T]) -> None:
            value = own.take()
            if value is not None:
                end(value)

        weakref.finalize(owner, ended, self).atexit = False

    def take(self) -> T | None:
        """Return this process's value and forget it; None if there is none."""
        return cast("T | None", _made.pop((os.getpid(), self._name), None))
