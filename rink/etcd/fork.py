"""Keep the parent's clients unused in a forked child.

Calls over an inherited gRPC channel sometimes hang or fail, and so does closing it. So the child
keeps every client until the process ends. Then none is collected, and no destructor of gRPC runs.
docs/internals/design/0002-etcd-client.md has the figures.
"""

from __future__ import annotations

import os
import weakref

# A fork concerns the whole process, so this registry is global. It is weak, so that it keeps no
# client alive in the parent.
_clients: weakref.WeakSet[object] = weakref.WeakSet()
_kept: list[object] = []


def keep_when_forked(client: object) -> None:
    """Keep a client in children that are forked from now on."""
    _clients.add(client)


def _after_in_child() -> None:
    _kept.extend(_clients)


os.register_at_fork(after_in_child=_after_in_child)
