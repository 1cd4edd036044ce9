"""Break the bounds by bytes, and the format of values in Redis."""

from __future__ import annotations

from mutants_of_streams import APPENDER, BUFFER, base, lua, python

BYTES = "../integration/streams/test_steps_bytes"
HELD = "streams/test_held_bytes_in_memory"
LARGE = "../integration/streams/test_large_records"
LAYOUT = "streams/test_layout_in_memory"
LAYOUT_ON_SERVERS = "../integration/streams/test_layout"
BYTE_LIMITS = "streams/test_byte_limits"

BOUNDS = [
    lua(
        "a take brings events however large they are",
        "common",
        "      if left < 0 then return read, bytes_of(entry) end\n",
        "",
        BYTES,
    ),
    python(
        "an event too large for the take is taken to be small",
        "streams/consumer/reader",
        "            self._sizes.note(owner, 1, owner.left_out)\n",
        "            pass\n",
        LARGE,
    ),
    python(
        "one small event hides large ones as much as many do",
        "streams/store/byte_limits",
        "min(count / _HALVING_COUNT, 0.5)",
        "0.5",
        BYTE_LIMITS,
    ),
    python(
        "the password in a URL that cannot be read is shown",
        "redis/error_map",
        '        if "@" not in url and',
        "        if True or",
        "streams/test_redis_error_map",
    ),
    python(
        "small events come one by one where others are large",
        "streams/store/byte_limits",
        "            if is_similar and total",
        "            if total",
        BYTE_LIMITS,
    ),
    python(
        "a timeout teaches nothing of sizes",
        "streams/store/byte_limits",
        "            self._sizes[key] = max(self._size(key), answered) * 2\n",
        "            pass\n",
        BYTE_LIMITS,
    ),
    python(
        "a few small entries hide that large ones come",
        "streams/store/byte_limits",
        "        self._sizes[key] = max(mean, before + (mean - before) * weight)\n",
        "        self._sizes[key] = before + (mean - before) * weight\n",
        BYTE_LIMITS,
    ),
    python(
        "the same partitions are asked each time",
        "streams/store/byte_limits",
        "[*(key for key in order if key not in planned), *planned]",
        "[*planned, *(key for key in order if key not in planned)]",
        BYTE_LIMITS,
    ),
    python(
        "a partition holds events however large they are",
        "streams/consumer/reader",
        "owner.looks_ahead or owner.buffer.size < self._held.share",
        "True",
        HELD,
    ),
    python(
        "one event that never comes in time holds up all partitions",
        "streams/consumer/reader",
        "        return owner in self._rests and",
        "        return False and",
        LARGE,
    ),
    python(
        "a call that came late is sent again as large",
        "streams/producer/appender",
        "                    self._max_bytes = max(self._max_bytes // 2, 1)\n",
        "",
        APPENDER,
    ),
    python(
        "what was too much for a call is forgotten with its answer",
        "streams/producer/appender",
        "min(self._max_bytes + max(int(limit * _GROWTH), 1), limit)",
        "limit",
        APPENDER,
    ),
    python(
        "a take that came late brings as much the next time",
        "streams/consumer/partition",
        "                    part *= 2\n",
        "                    pass\n",
        LARGE,
    ),
    python(
        "what is committed is still counted as held",
        "streams/consumer/buffer",
        "            self.size -= len(entry.data) if entry.fields is None else entry.size\n",
        "",
        BUFFER,
    ),
    python(
        "a commit has dead letters however large they are",
        "streams/consumer/buffer",
        "            if max_bytes is not None and any(",
        "            if False and any(",
        BUFFER,
    ),
    python(
        "outputs go with a part of what is finished",
        "streams/consumer/committer",
        "            if self._buffer.passage() is None:\n",
        "            if self._buffer.passage(1) is None:\n",
        HELD,
    ),
    python(
        "a commit may have outputs of any size",
        "streams/consumer/committer",
        "    if size > limits.in_flight:\n",
        "    if False:\n",
        HELD,
    ),
    python(
        "a read that came too late is asked again as large",
        "streams/consumer/reader",
        "            self._empty.clear()\n            raise\n",
        "            raise\n",
        LARGE,
    ),
    python(
        "a batch waits for more where memory is full",
        "streams/consumer/owner",
        "(is_enough or is_over or self.is_full)",
        "(is_enough or is_over)",
        HELD,
    ),
    python(
        "a processor that holds all its memory waits for more",
        "streams/consumer/owner",
        "        is_over = self.is_full and self.buffer.has_yielded\n",
        "        is_over = False\n",
        HELD,
    ),
    python(
        "a full memory hides the events behind one that does not decode",
        "streams/consumer/owner",
        "        self.looks_ahead = True\n",
        "        pass\n",
        HELD,
    ),
    python(
        "events of a refused commit count as finished",
        "streams/consumer/buffer",
        "            self.count_finished -= not entry.skipped\n",
        "",
        BUFFER,
    ),
    base(
        "a hash of another format is taken for ours",
        "base",
        "  if format == FORMAT or not format",
        "  if true or not format",
        LAYOUT_ON_SERVERS,
    ),
    base(
        "a hash may begin without its format",
        "base",
        "  redis.call('HSET', key, 'format', FORMAT, ...)",
        "  if #{...} > 0 then redis.call('HSET', key, ...) end",
        LAYOUT,
    ),
]
