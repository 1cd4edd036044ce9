"""Every step that Redis must do in one piece, as Lua."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

import attrs

_REFUSED_WHEN_FULL = {
    "append": "append",
    "requeue": "requeue",
    "settle": "settle",
    "write": "commit",
}
"""These make what Redis holds larger, so it refuses them when it is out of memory. All else goes on.

`write` is a commit with outputs of the user's; one with dead letters alone goes on, or a full Redis
would not let an event be given up.
"""

_ONLY_READS = {"look"}
"""These go on where nothing may be written: without enough replicas, say."""


@attrs.frozen
class Script:
    """A script and what Redis knows it by."""

    text: str
    sha: str


_PARTITION = "partition("
"""A script with this call gets `partition.lua` in front.

Others do not, since each run makes its functions anew.
"""

_WITHOUT_PARTITION = {"commit"}
"""This script writes dead letters to a stream that is no partition, so it never makes that call."""


@cache
def script(name: str) -> Script:
    """Return the script of that name, what all have in common in front."""
    grows = name in _REFUSED_WHEN_FULL
    own = (resources.files(__name__) / f"{_REFUSED_WHEN_FULL.get(name, name)}.lua").read_text()
    flags = "" if grows else "no-writes" if name in _ONLY_READS else "allow-oom"
    return _joined(own, flags, _PARTITION in own and name not in _WITHOUT_PARTITION)


def made(own: str, flags: str) -> Script:
    """Return a step of one's own as a script, what all have in common in front.

    Args:
        own: its Lua. It may use the functions of `common.lua`, and those of `partition.lua` if it calls `partition`.
        flags: as Redis knows them; "" is refused while Redis is out of memory.
    """
    return _joined(own, flags, _PARTITION in own)


def _joined(own: str, flags: str, has_partition: bool) -> Script:
    folder = resources.files(__name__)
    names = ("common", "partition") if has_partition else ("common",)
    shared = [(folder / f"{name}.lua").read_text() for name in names]
    text = "\n".join([f"#!lua flags={flags}" if flags else "#!lua", *shared, own])
    return Script(text, hashlib.sha1(text.encode()).hexdigest())  # noqa: S324 - Redis names scripts so
