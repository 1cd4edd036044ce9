"""Load the Lua scripts of streams; each is one atomic step."""

from __future__ import annotations

from functools import cache

from rink.redis.scripts import Script, compose, read

_REFUSED_WHEN_FULL = {"append": "append", "requeue": "requeue", "write": "commit"}
"""The scripts that Redis refuses while it is out of memory, with their files.

These scripts add data. All others still run. `write` is a commit with outputs of the user. A commit
with only dead letters still runs, since a poison event must be given up even if Redis is full.
"""

_ONLY_READS = {"look"}
"""The scripts that still run if writes are refused, for example without enough replicas."""

_PARTITION = "partition("
"""The call that makes a script begin with partition.lua.

Other scripts do not get it, since each run would define its functions again.
"""

_WITHOUT_PARTITION = {"commit"}
"""Scripts whose calls of `partition` do not count.

A commit without outputs writes dead letters only to streams that are no partitions, so it never
makes that call.
"""


@cache
def script(name: str) -> Script:
    """Return the script with this name."""
    own = read(__package__, _REFUSED_WHEN_FULL.get(name, name))
    grows = name in _REFUSED_WHEN_FULL
    flags = "" if grows else "no-writes" if name in _ONLY_READS else "allow-oom"
    return _with_common(own, flags, _PARTITION in own and name not in _WITHOUT_PARTITION)


def compose_step(own: str, flags: str) -> Script:
    """Return a script of another package that also works on partitions.

    Args:
        own: the Lua text. It may use the functions of common.lua. If it calls `partition`, it may
            use the functions of partition.lua.
        flags: the flags of Redis; "" makes Redis refuse the script while it is out of memory.
    """
    return _with_common(own, flags, _PARTITION in own)


def _with_common(own: str, flags: str, has_partition: bool) -> Script:
    names = ("common", "partition") if has_partition else ("common",)
    return compose([*(read(__package__, name) for name in names), own], flags)
