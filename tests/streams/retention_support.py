"""Share helpers for tests of retention.

They add events of another time, and count the events that exist.
"""

from rink.redis.scripts import ScriptCall
from rink.streams.store.scripts import compose_step

DAY_MS = 86_400_000

_ADD_AT = compose_step(
    """
local part = partition(1, args.bounds)
for i = 2, #ARGV, 2 do add(part, ARGV[i], 'd', ARGV[i + 1]) end
save(part)
""",
    "",
)
"""An append with given ids, since Redis' clock cannot be turned back; else as in append.lua."""


async def add_at(redis, names, bounds, entries):
    """Append events as if they had been sent at other times.

    The entries are pairs of id and record.
    """
    given = [part for pair in entries for part in pair]
    call = ScriptCall(_ADD_AT, names.keys, {"bounds": bounds.args}, given)
    await redis.execute_command(*call.eval())


async def redis_ms(redis):
    """Return the time by Redis' clock, in milliseconds."""
    seconds, micros = await redis.time()
    return seconds * 1000 + micros // 1000


async def true_size(redis, names):
    """Return the number of events in a partition and their bytes.

    They are counted one by one.
    """
    entries = await redis.xrange(names.stream)
    sizes = [len(key) + len(value) for _, fields in entries for key, value in fields.items()]
    return len(entries), sum(sizes)


async def told_size(redis, names):
    """Return the same as the counters of the partition have it."""
    kept = await redis.hgetall(names.kept)
    [first] = await redis.xrange(names.stream, count=1)
    [(_, start)] = await redis.xrevrange(names.segments, max=first[0], count=1)
    return int(kept[b"added"]) - int(start[b"n"]), int(kept[b"bytes"]) - int(start[b"b"])
