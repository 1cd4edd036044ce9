"""Break what an app declares beside its processors.

These are hashers, dead letters as a stream, tasks and hooks.
"""

from __future__ import annotations

from mutant import Mutant
from mutants_of_streams import base, lua, python

HASHER = "streams/test_hasher_agreed_in_memory"
LETTERS = "streams/test_dead_letters_in_memory"
ON_SPARK = "../integration/spark/test_source_and_sink_options"
HASHERS = "streams/test_hashers"
DEAD_LETTER_STREAM = "streams/test_dead_letter_stream"
HOOKS = "streams/test_hooks"
APP_TASKS = "streams/test_app_tasks"

DECLARATIONS = [
    python(
        "a program with another hasher is let in",
        "redis/partition_count",
        "    if stored.hasher != declared.hasher:",
        "    if False:",
        HASHER,
    ),
    base(
        "the hasher is not written with the number of partitions",
        "settle",
        "if args.hasher ~= '' then redis.call('HSET', KEYS[1], 'hasher', args.hasher) end\n",
        "",
        HASHER,
    ),
    base(
        "the last program to come says which hasher there is",
        "settle",
        "if redis.call('HEXISTS', KEYS[1], 'partitions') == 1 then return end\n",
        "",
        HASHER,
    ),
    python(
        "a hasher that gives a key two partitions is taken",
        "streams/hashers",
        "    if answers != [_sampled(hasher, stream, key, count) for key in _SAMPLES]:",
        "    if False:",
        HASHERS,
    ),
    Mutant(
        "Spark spreads keys without the hasher of their stream",
        "rink/spark/sink/writers.py",
        "        if place.declared() is None and connection(place).hasher(place):",
        "        if False:",
        (ON_SPARK,),
    ),
    python(
        "letters that were read are trimmed",
        "streams/consumer/committer",
        "        if stream.is_trimmed and self._untrimmed * 20 >= stream.partition_size:",
        "        if self._untrimmed * 20 >= stream.partition_size:",
        LETTERS,
    ),
    python(
        "a letter that is gone is missed by whoever has read it",
        "streams/dead_letter_stream",
        "        return PartitionBounds(0, loses=True)",
        "        return PartitionBounds(0, loses=False)",
        LETTERS,
    ),
    lua(
        "a letter that is passed over becomes another letter",
        "skip",
        "if args.is_trimmed then\n",
        "if true then\n",
        LETTERS,
    ),
    python(
        "letters of letters are written",
        "streams/dead_letter_stream",
        '        if wanted == "dead-letter":',
        "        if False:",
        DEAD_LETTER_STREAM,
    ),
    python(
        "the letters of a misspelt processor are read for ever",
        "streams/dead_letter_stream",
        "        if self.processor in registered or await self._has_letters(store):",
        "        if True:",
        LETTERS,
    ),
    python(
        "a leader whose task at the start is done leads anew",
        "streams/consumer/app_tasks",
        "        await asyncio.Event().wait()\n",
        "        return\n",
        APP_TASKS,
    ),
    python(
        "a task at the start that failed is done",
        "streams/consumer/app_tasks",
        "            succeeds = False",
        "            pass",
        APP_TASKS,
    ),
    python(
        "events are given before the hook at the start has succeeded",
        "streams/consumer/grant_run",
        "        while not owner.buffer.stopped and not await self._hooks.start():",
        "        while not owner.buffer.stopped and not await self._hooks.start() and False:",
        HOOKS,
    ),
    python(
        "a hook is called at an end without a start",
        "streams/hooks",
        "        if self._on_stop is None or not self._has_started:",
        "        if self._on_stop is None:",
        HOOKS,
    ),
    python(
        "the hook at the end is called before the last commit",
        "streams/consumer/grant_run",
        "        owner.commits.close()\n",
        "        await self._hooks.stop(self._seconds_left())\n        owner.commits.close()\n",
        HOOKS,
    ),
    python(
        "a hook at the end may take for ever",
        "streams/hooks",
        "        limit = asyncio.timeout(max(within, _MIN_TIMEOUT_S))",
        "        limit = asyncio.timeout(None)",
        HOOKS,
    ),
    python(
        "a partition is handed over while the thread of its hook goes on",
        "streams/consumer/user_thread",
        "        await outlast([ended, abandoned])\n",
        "",
        HOOKS,
    ),
    python(
        "a worker begins though a hook at the start failed",
        "streams/hooks",
        '            error.add_note(f"raised by the hook {name_of(hook)!r}: the worker does not '
        'start")\n            raise\n',
        "            pass\n",
        HOOKS,
    ),
]
