"""Share with tests of failures what they declare, count and log."""

import contextlib
import logging

from workers_support import QUICK

from rink.streams import admin


def per_key(count, keys):
    return {f"k{key}": list(range(key, count, keys)) for key in range(keys)}


async def all_dead(shop, processor="note"):
    numbers = range(shop.legs.partition_count)
    return [letter for n in numbers for letter in await shop.dead(processor, n)]


async def total(shop, name, processor="note"):
    found = [await shop.at(processor, n) for n in range(shop.legs.partition_count)]
    return sum(int(at.get(name, 0)) for at in found)


def counted(worker, name, processor="note"):
    """Return the sum of a metric over all partitions."""
    return sum(
        sample.value
        for metric in worker.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == f"rink_streams_{name}"
    )


@contextlib.contextmanager
def logged():
    """Collect the log records of streams and of their Redis."""
    records, handler = [], logging.Handler()
    handler.emit = records.append
    loggers = [logging.getLogger(f"rink.{name}") for name in ("streams", "redis")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield records
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def note_all(shop, **settings):
    @shop.app.processor(shop.legs, **QUICK, **settings)
    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))


async def is_done(shop, count):
    [one] = await admin.lag(shop.app)
    return len(shop.seen) >= count and one.lag == 0 and one.owned


def lost_data(records):
    """Return the log message about lost data, or "" before it is noticed."""
    told = [one for one in records if "on_data_loss='continue'" in one.getMessage()]
    assert [one.levelno for one in told] in ([], [logging.ERROR])
    return told[0].getMessage() if told else ""
