"""Run three workers and a sender for the part `streams_handover`.

One of the workers stands by.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

from arena import Arena
from child import Child

from parts.streams_stage import keys_of
from rink.testing import RedisNode

PARTITIONS = 128
SHARE = PARTITIONS // 2
STANDS_BY_S = 600
_apps = itertools.count(1)


class BaseTrio:
    """Run three workers and a sender.

    `leaver` and `other` have half of the partitions each, `heir` has none.
    """

    leaver: Child
    heir: Child
    other: Child
    _keys: list[str]
    _sender: Child

    def send(self, every: float, seconds: float) -> None:
        """Begin to send; `sent` waits for the end.

        Each partition gets an event every `every` seconds.
        """
        rate = PARTITIONS / every
        self._sender.tell("pace", keys=self._keys, rate=rate, count=int(rate * seconds))

    def sent(self) -> None:
        self._sender.answer()

    def leave(self) -> dict[str, Any]:
        """Let a worker leave as at SIGTERM; return its request and its end."""
        raise NotImplementedError

    def turn(self) -> None:
        """Bring the worker that left back, to stand by."""
        raise NotImplementedError

    def close(self) -> None:
        for child in (self._sender, self.leaver, self.heir, self.other):
            child.close()


class Trio(BaseTrio):
    """Run three workers of `rink.streams`."""

    def __init__(self, arena: Arena, redis: RedisNode, ttl: float) -> None:
        app = f"trio-{next(_apps)}"
        given = {
            "redis": redis.url,
            "etcd": arena.etcd.endpoint,
            "prefix": arena.prefix(),
            "ttl": ttl,
            "app": app,
            "partitions": PARTITIONS,
        }
        self._keys = keys_of(app, count=PARTITIONS)
        self._names = itertools.count(1)
        self._sender = Child("streams_bare.py", json.dumps(given))
        # The second one shares at once; a newcomer after it stands by.
        self.leaver, self.heir, self.other = (
            Child("streams_holder.py", json.dumps(given | {"delay": delay}))
            for delay in (STANDS_BY_S, STANDS_BY_S, 0)
        )
        for child, count in ((self.leaver, PARTITIONS), (self.other, SHARE)):
            child.ask("start", name=f"w{next(self._names)}")
            child.ask("owns", count=count)
        self.leaver.ask("owns", count=SHARE)
        self._stand_by(self.heir)

    def _stand_by(self, child: Child) -> None:
        name = f"w{next(self._names)}"
        child.ask("start", name=name)
        for other in (self.leaver, self.other):
            if other is not child:
                other.ask("knows", name=name)

    def leave(self) -> dict[str, Any]:
        return self.leaver.ask("leave")

    def turn(self) -> None:
        self.leaver, self.heir = self.heir, self.leaver
        self.leaver.ask("owns", count=SHARE)
        self._stand_by(self.heir)


class BareTrio(BaseTrio):
    """Run the same trio without Rink.

    It does as little as possible, with processes that know beforehand which partitions they get.
    """

    def __init__(self, arena: Arena, redis: RedisNode) -> None:
        self._keys = keys_of(f"bare-{next(_apps)}", count=PARTITIONS)
        self._frees = (f"{arena.prefix()}{number}" for number in itertools.count())
        self._next = next(self._frees)
        given = json.dumps({"redis": redis.url, "endpoint": arena.etcd.endpoint})
        self._sender = Child("streams_bare.py", given)
        self.leaver, self.heir, self.other = (Child("streams_bare_holder.py", given) for _ in "abc")
        self.leaver.ask("hold", **self._share(range(SHARE)))
        self.other.ask("hold", **self._share(range(SHARE, PARTITIONS)))
        self.heir.ask("stand_by", waits=self._next, **self._share(range(SHARE)))

    def _share(self, numbers: range) -> dict[str, Any]:
        return {"keys": [self._keys[number] for number in numbers], "numbers": list(numbers)}

    def leave(self) -> dict[str, Any]:
        return self.leaver.ask("leave", frees=self._next)

    def turn(self) -> None:
        self._next = next(self._frees)
        self.leaver, self.heir = self.heir, self.leaver
        self.heir.ask("stand_by", waits=self._next, **self._share(range(SHARE)))
