"""Build Lua scripts, and run them where Redis may not know them yet.

`run` decides what to send and never sends it. Two drivers send for it: `script_pipeline` on
asyncio, and `blocking_client.run_scripts`. So a script that Redis does not know is handled in one
place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import attrs
from redis.exceptions import NoScriptError

Command = tuple[Any, ...]
"""The words of one command of Redis."""

Args = Mapping[str, object]
"""The named arguments of a script.

A number that may need more than 53 bits is text, since Lua would round it. An argument without a
value is left out.
"""

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@attrs.frozen
class Script:
    """A Lua script, and the SHA-1 by which Redis knows it."""

    text: str
    sha: str


@attrs.frozen(eq=False)
class ScriptCall:
    """One run of a script, with its keys and arguments.

    Attributes:
        args: the named arguments; base.lua reads them from the JSON in `ARGV[1]`.
        blobs: the strings of any bytes, which JSON cannot hold: `ARGV[2]` and on.
    """

    script: Script
    keys: Sequence[Any]
    args: Args
    blobs: Sequence[str | bytes] = ()

    def evalsha(self) -> Command:
        """Return the command for a server that knows the script."""
        return ("EVALSHA", self.script.sha, *self._words())

    def eval(self) -> Command:
        """Return the command that also makes the script known to the server."""
        return ("EVAL", self.script.text, *self._words())

    def _words(self) -> Command:
        return (len(self.keys), *self.keys, _json(self.args), *self.blobs)


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
def _settle_script() -> Script:
    return compose([read(__package__, "settle")], "")


def settle_call(about: str, count: int, hasher: str) -> ScriptCall:
    """Return the call that settles the partition count of a stream.

    Args:
        about: the stream's hash.
        count: the number of partitions.
        hasher: the fingerprint of the hasher; "" for the built-in one.
    """
    return ScriptCall(_settle_script(), [about], {"partitions": count, "hasher": hasher})


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
