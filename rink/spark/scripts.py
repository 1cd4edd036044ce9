"""Load the Lua scripts of source and sink."""

from __future__ import annotations

from functools import cache

from rink.redis.scripts import Script, read
from rink.streams.store.scripts import compose_step

_FLAGS = {"bound": "no-writes", "place": "no-writes", "state": "no-writes", "stage": ""}
"""The flags of the scripts that only read, and of the one that is refused while Redis is out of
memory.

The others go on: publishing frees the memory of what was staged.
"""


@cache
def script(name: str) -> Script:
    """Return the script of that name."""
    own = "\n".join(read(__package__, part) for part in ("common", name))
    return compose_step(own, _FLAGS.get(name, "allow-oom"))
