"""Run the processes that the part `streams` measures.

They are a Redis, one process with Rink and one without, and their events.
"""

from __future__ import annotations

import itertools
import json
import time

from arena import Arena
from child import Child, now
from sales import PARTITIONS

from rink.streams.store.keys import Names
from rink.testing import RedisNode

READY_S = 30.0


class Stage:
    """Give all measurements the same events.

    They are made once, and copied in Redis for each measurement.
    """

    def __init__(self, arena: Arena, redis: RedisNode) -> None:
        self.redis = redis
        given = {"redis": redis.url, "etcd": arena.etcd.endpoint, "prefix": arena.prefix()}
        self.member = Child("streams_member.py", json.dumps(given))
        self.second = Child("streams_member.py", json.dumps(given))
        self.bare = Child("streams_bare.py", json.dumps(given))
        self.sender = Child("streams_bare.py", json.dumps(given))
        self._apps = itertools.count(1)
        self._templates: list[str] = []
        self._each = 0

    def close(self) -> None:
        for child in (self.member, self.second, self.bare, self.sender):
            child.close()

    def fresh(self) -> tuple[str, list[str]]:
        """Return an unused app's name and the keys of its partitions.

        All else is removed from Redis, except the templates.
        """
        app = f"bench-{next(self._apps)}"
        for key in self.redis.call("KEYS", "*"):
            if key not in self._templates:
                self.redis.call("DEL", key)
        return app, keys_of(app)

    def prepare(self, each: int) -> None:
        """Make templates with this many events for each partition."""
        if each == self._each:
            return
        self._templates = [f"template-{number}" for number in range(PARTITIONS)]
        self.redis.call("DEL", *self._templates)
        self.bare.ask("fill", keys=self._templates, each=each)
        self._each = each

    def _filled(self) -> tuple[str, list[str]]:
        app, keys = self.fresh()
        for template, key in zip(self._templates, keys, strict=True):
            self.redis.call("COPY", template, key)
        return app, keys

    # ── events a second ──────────────────────────────────────────────────────────────────────

    def processed(self, kind: str, each: int) -> float:
        app, _ = self._filled()
        return (
            each * PARTITIONS / self.member.ask("process", app=app, kind=kind, each=each)["seconds"]
        )

    def looped(self, batch: int, each: int) -> float:
        _, keys = self._filled()
        return (
            each
            * PARTITIONS
            / self.bare.ask("process", keys=keys, each=each, batch=batch)["seconds"]
        )

    def sent(self, how: str, count: int) -> float:
        app, _ = self.fresh()
        return count / self.member.ask("send", app=app, count=count, how=how)["seconds"]

    def piped(self, at_once: int, count: int) -> float:
        _, keys = self.fresh()
        return count / self.bare.ask("send", keys=keys, count=count, at_once=at_once)["seconds"]

    def wait_open(self, app: str, processor: str) -> None:
        """Wait until a worker owns every partition of an app."""
        keys = [place.at(processor) for place in places_of(app)]
        end = now() + READY_S
        while any(self.redis.call("HGET", key, "open") != "1" for key in keys):
            if now() > end:
                raise RuntimeError(f"no worker owned all of {app} within {READY_S:g} s")
            time.sleep(0.02)


def places_of(app: str, stream: str = "sales", count: int = PARTITIONS):
    names = Names.of(app, stream)
    return [names.partition(number) for number in range(count)]


def keys_of(app: str, stream: str = "sales", count: int = PARTITIONS) -> list[str]:
    """Return the keys of a stream's partitions in Redis."""
    return [place.stream for place in places_of(app, stream, count)]
