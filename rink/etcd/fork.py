"""A forked child lets go of its parent's clients without touching them.

Calls over an inherited gRPC channel hang or fail now and then, and so does closing it; so in the
child every client is kept, unused, until the process ends: nothing of it is ever collected, and no
destructor of gRPC's runs. docs/internals/design/0002-etcd-client.md has the figures.
"""

from __future__ import annotations

import os
import weakref

# The one registry there is: a fork concerns the process. Weak, so that it keeps no client alive.
_clients: weakref.WeakSet[object] = weakref.WeakSet()
_kept: list[object] = []


def keep_when_forked(client: object) -> None:
    """Keep it in children that are forked from now on."""
    _clients.add(client)


def _after_in_child() -> None:
    _kept.extend(_clients)


os.register_at_fork(after_in_child=_after_in_child)
