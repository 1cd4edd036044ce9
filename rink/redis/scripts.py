"""Build Lua scripts, and run them even if Redis does not know them yet.

`run` decides which commands to send, and never sends them. Two drivers send them: `script_pipeline`
on asyncio, and `blocking_client.run_scripts`. So a script that Redis does not know is handled in
one place.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
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

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _json(args: Args) -> str:
    return _encode(args)


@attrs.frozen
class Script:
    """Hold a Lua script, and the SHA-1 by which Redis knows it."""

    text: str
    sha: str


@attrs.frozen(eq=False)
class ScriptCall:
    """Hold one run of a script, with its keys and arguments.

    Attributes:
        args: the named arguments, as the JSON that base.lua reads from `ARGV[1]`.
        blobs: strings of any bytes, which JSON cannot hold, from `ARGV[2]` on.
    """

    script: Script
    keys: Sequence[Any]
    args: str = attrs.field(converter=_json)
    blobs: Sequence[str | bytes] = ()

    def evalsha(self) -> Command:
        """Return the command for a server that knows the script."""
        return self._command("EVALSHA", self.script.sha)

    def eval(self) -> Command:
        """Return the command that also makes the script known to the server."""
        return self._command("EVAL", self.script.text)

    def _command(self, *script: str) -> Command:
        return (*script, len(self.keys), *self.keys, self.args, *self.blobs)


def compose(parts: Iterable[str], flags: str) -> Script:
    """Return the script that consists of base.lua and these parts.

    Args:
        parts: Lua texts, in order. Each may use the functions of base.lua and of earlier parts.
        flags: the flags of Redis; "" makes Redis refuse the script while it is out of memory.
    """
    text = "\n".join(
        [f"#!lua flags={flags}" if flags else "#!lua", read(__package__, "base"), *parts]
    )
    # Redis names scripts by their SHA-1.
    return Script(text, hashlib.sha1(text.encode()).hexdigest())  # noqa: S324


def read(package: str, name: str) -> str:
    """Return the text of the file `lua/NAME.lua` of a package."""
    return (resources.files(package) / "lua" / f"{name}.lua").read_text()


def run(calls: Sequence[ScriptCall]) -> Generator[list[Command], list[Any], list[Any]]:
    """Yield commands, receive their replies, and return one reply per call.

    An error is received and returned as a reply. A server that was restarted, or that took over,
    does not know the scripts. Then the refused calls are sent once more with their text.
    """
    replies = yield [call.evalsha() for call in calls]
    unknown = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
    if unknown:
        repeated = yield [calls[i].eval() for i in unknown]
        for i, reply in zip(unknown, repeated, strict=True):
            replies[i] = reply
    return replies
