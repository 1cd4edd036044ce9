"""A forked child lets go of its parent's channels without touching them.

Calls over an inherited gRPC channel hang or fail now and then, and so does closing it; so in the
child every channel is kept, unused, until the process ends. See ETCD-CLIENT section 7.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Dropping(Protocol):
    """Something with channels."""

    def drop_in_child(self) -> object:
        """Let go of the channels without closing them; what is returned is kept for ever."""
        ...


# The one registry there is: a fork concerns the process. Weak, so that it keeps no client alive.
_known: weakref.WeakSet[Dropping] = weakref.WeakSet()
_kept: list[object] = []


def drop_when_forked(one: Dropping) -> None:
    """Have it let go in children that are forked from now on."""
    _known.add(one)


def _after_in_child() -> None:
    _kept.extend(one.drop_in_child() for one in list(_known))


os.register_at_fork(after_in_child=_after_in_child)
