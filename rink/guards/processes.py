"""What each process has for itself: connections, of a guard that was pickled or forked into it.

Copies of a guard share what their process made: a worker unpickles one for each task. What a parent
made stays untouched in a child, and is kept there: closing it, or letting it be collected, could
speak on the parent's connection.
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
    def of(cls, *told: Any) -> Self:
        """Return the one of what it is made from: who is told the same, shares it.

        So a guard that a query's function makes, at each start anew, leaves no connection more. A
        digest, since there may be a password in it.
        """
        return cls(hashlib.sha256(pickle.dumps(told)).hexdigest())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._name,)

    def get(self, make: Callable[[], T]) -> T:
        """Return this process's, made now if there is none."""
        pid = os.getpid()
        key = (pid, self._name)
        found = _made.get(key)
        if found is None:
            # A lock for each process: a fork may copy one that a thread of the parent holds.
            with _locks.setdefault(pid, threading.Lock()):
                found = _made.get(key)
                if found is None:
                    found = _made[key] = make()
        return cast("T", found)

    def ends_with(self, owner: object, end: Callable[[T], object] = lambda _: None) -> None:
        """Forget this process's, and end it, when its owner is collected; what copies of the owner
        need they make anew.
        """

        def ended(own: PerProcess[T]) -> None:
            made = own.take()
            if made is not None:
                end(made)

        weakref.finalize(owner, ended, self).atexit = False

    def take(self) -> T | None:
        """Return this process's and forget it; None where there is none."""
        return cast("T | None", _made.pop((os.getpid(), self._name), None))
