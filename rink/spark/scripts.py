"""Load the Lua scripts of the source and the sink."""

from __future__ import annotations

from functools import cache

from rink.redis.scripts import Script, read
from rink.streams.store.scripts import compose_step

_FLAGS = {
    "source/bound": "no-writes",
    "source/place": "no-writes",
    "sink/state": "no-writes",
    "sink/stage": "",
}
"""The flags of the scripts that only read, and of `sink/stage`.

When Redis is out of memory, it refuses only `sink/stage`. Publishing must still run, since it frees
the memory of staged records.
"""


@cache
def script(name: str) -> Script:
    """Return a script by its name, such as `sink/stage`."""
    own = "\n".join(read(__package__, part) for part in ("common", name))
    return compose_step(own, _FLAGS.get(name, "allow-oom"))
