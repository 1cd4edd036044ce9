"""Load the Lua scripts of streams: the steps that Redis must do in one piece."""

from __future__ import annotations

from functools import cache

from rink.redis.scripts import Script, compose, read

_REFUSED_WHEN_FULL = {"append": "append", "requeue": "requeue", "write": "commit"}
"""Maps the scripts that Redis refuses while it is out of memory to their files.

They make what Redis holds larger; all others go on. `write` is a commit with outputs of the user.
A commit with dead letters alone goes on, since otherwise a full Redis would keep a poison event from
being given up.
"""

_ONLY_READS = {"look"}
"""The scripts that go on where nothing may be written, such as without enough replicas."""

_PARTITION = "partition("
"""A script with this call gets partition.lua in front.

Others do not get it, since each run defines its functions anew.
"""

_WITHOUT_PARTITION = {"commit"}
"""This script writes dead letters to a stream that is no partition, so it never makes that call."""


@cache
def script(name: str) -> Script:
    """Return the script of that name."""
    own = read(__package__, _REFUSED_WHEN_FULL.get(name, name))
    grows = name in _REFUSED_WHEN_FULL
    flags = "" if grows else "no-writes" if name in _ONLY_READS else "allow-oom"
    return _with_common(own, flags, _PARTITION in own and name not in _WITHOUT_PARTITION)


def compose_step(own: str, flags: str) -> Script:
    """Return a script for a room that works on partitions, too.

    Args:
        own: its Lua. It may use the functions of common.lua, and those of partition.lua if it calls
            `partition`.
        flags: as Redis defines them; "" is refused while Redis is out of memory.
    """
    return _with_common(own, flags, _PARTITION in own)


def _with_common(own: str, flags: str, has_partition: bool) -> Script:
    names = ("common", "partition") if has_partition else ("common",)
    return compose([*(read(__package__, name) for name in names), own], flags)
