"""Build Lua scripts, and run them where Redis may not know them yet.

`run` decides what to send and never sends it. Two drivers send for it: `script_pipeline` on
asyncio, and `blocking_client.run_scripts`. So a script that Redis does not know is handled in one
place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import attrs
from redis.exceptions import NoScriptError

Command = tuple[Any, ...]
"""The words of one command of Redis."""


@attrs.frozen
class Script:
    """A Lua script, and the SHA-1 by which Redis knows it."""

    text: str
    sha: str


@attrs.frozen(eq=False)
class ScriptCall:
    """One run of a script, with its keys and other arguments."""

    script: Script
    keys: Sequence[Any]
    args: Sequence[Any]

    def evalsha(self) -> Command:
        """Return the command for a server that knows the script."""
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)

    def eval(self) -> Command:
        """Return the command that also makes the script known to the server."""
        return ("EVAL", self.script.text, len(self.keys), *self.keys, *self.args)


def compose(parts: Iterable[str], flags: str) -> Script:
    """Return the script that base.lua and these parts make.

    Args:
        parts: Lua texts, in order. Each may use the functions of base.lua and of the parts before.
        flags: as Redis defines them; "" makes Redis refuse the script while it is out of memory.
    """
    text = "\n".join(
        [f"#!lua flags={flags}" if flags else "#!lua", read(__package__, "base"), *parts]
    )
    # Redis names scripts by their SHA-1.
    return Script(text, hashlib.sha1(text.encode()).hexdigest())  # noqa: S324


def read(package: str, name: str) -> str:
    """Return the text of the file `lua/NAME.lua` of a package."""
    return (resources.files(package) / "lua" / f"{name}.lua").read_text()


@cache
def settle_script() -> Script:
    """Return the script that settles the partition count of a stream."""
    return compose([read(__package__, "settle")], "")


def run(calls: Sequence[ScriptCall]) -> Generator[list[Command], list[Any], list[Any]]:
    """Yield commands, receive their replies, and return one per call.

    An error is received and returned as a reply. A server that was restarted, or that took over,
    does not know the scripts. Then those calls are sent once more with their text.
    """
    replies = yield [call.evalsha() for call in calls]
    unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        repeated = yield [calls[i].eval() for i in unknown]
        for i, reply in zip(unknown, repeated, strict=True):
            replies[i] = reply
    return replies
