"""Offer a stream on a fake store.

The store may be unavailable, silent or late.
"""

import asyncio

from rink.streams import App, Record, RedisUnavailable
from rink.streams.store.byte_limits import ByteLimits


class Leg(Record):
    who: str = "a"


class Store:
    """A store whose Redis is unavailable for some calls, or silent."""

    def __init__(self, away=0, silent=False, error=None):
        self.away, self.silent, self.error = away, silent, error
        self.opened = self.closed = 0
        self.limits = ByteLimits()
        self.server = "here"

    async def open(self):
        self.opened += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.error:
            raise self.error
        if self.away:
            self.away -= 1
            raise RedisUnavailable("away", server="here")

    async def close(self):
        self.closed += 1

    async def settle_count(self, *_):
        pass

    def has_settled(self, *_):
        return True

    async def append(self, names, bounds, records, number, wants_ids):
        return len(records), ["1-0"] * len(records)


def app_on(store):
    app = App("shop")
    app.connections.connect = lambda: store
    return app, app.stream("legs", record=Leg, partition_by="who")
