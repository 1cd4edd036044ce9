"""Run an app's processor without servers, and note what it sees.

The app has one stream.
"""

import asyncio

from rink.streams import App, JsonCodec, Record
from rink.testing.streams import _OwnerOfAll, process


def have_batches_wait(monkeypatch):
    """Make the kit's batches wait for as long as `take` allows.

    So does a worker, which never knows that it has all events.
    """
    monkeypatch.setattr(_OwnerOfAll, "_has_all", lambda self: False)


TTL_S = 60.0
"""The ttl of a test's session: a lease of some seconds would end if the machine stood still."""


class Leg(Record):
    n: int
    who: str = "a"
    note: str = ""


class Brittle(JsonCodec):
    """A codec that raises any error."""

    def decode(self, data):
        leg = super().decode(data)
        if leg.note == "brittle":
            raise KeyError(leg.n)
        return leg


class Shop:
    """An app with one stream, the events of its processor, and the results."""

    def __init__(self, **settings):
        self.app = App("shop")
        codec = settings.pop("codec", None)
        self.legs = self.app.stream("legs", record=Leg, partition_by="who", codec=codec)
        self.out = self.app.stream("out", record=Leg, partition_by="who")
        self.settings = settings
        self.seen = []

    def processor(self, function):
        return self.app.processor(self.legs, name="note", **self.settings)(function)

    def process(self, count=130, seconds=20.0, notes=()):
        notes = dict(notes)
        legs = [Leg(n=n, note=notes.get(n, "")) for n in range(count)]
        return process(self.app, "note", legs, seconds=seconds)


def numbers(legs):
    return [leg.n for leg in legs]


def note_one_by_one(shop, is_thread):
    """Declare a processor that notes each record: on the loop, or in a thread."""

    async def note(events):
        async for leg in events.records():
            shop.seen.append(leg.n)

    def note_in_thread(events):
        for leg in events.records():
            shop.seen.append(leg.n)

    shop.processor(note_in_thread if is_thread else note)


async def turns():
    """Let all other tasks run that are ready."""
    for _ in range(20):
        await asyncio.sleep(0)
