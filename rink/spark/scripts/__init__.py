"""What source and sink have Redis do in one piece, as Lua; what streams have in common stands in front."""

from __future__ import annotations

from functools import cache
from importlib import resources

from rink.streams.scripts import Script, made
from rink.streams.scripts import script as script_of_streams

_FLAGS = {"bound": "no-writes", "place": "no-writes", "state": "no-writes", "stage": ""}
"""What only reads; what is refused while Redis is out of memory. The rest goes on: publishing frees what was staged."""


@cache
def script(name: str) -> Script:
    """Return the script of that name; `settle` is that of streams."""
    if name == "settle":
        return script_of_streams(name)
    folder = resources.files(__name__)
    own = "\n".join((folder / f"{one}.lua").read_text() for one in ("common", name))
    return made(own, _FLAGS.get(name, "allow-oom"))
