"""Break the bounds by bytes, and the format of values in Redis."""

from __future__ import annotations

from mutants_of_streams import INBOX, LANES, base, lua, python

BYTES = "../integration/streams/test_steps_bytes"
LARGE = "../integration/streams/test_large_records"
LAYOUT = "../integration/streams/test_layout"
SIZES = "streams/test_sizes"

BOUNDS = [
    lua(
        "a take brings events however large they are",
        "common",
        "      if left < 0 then return found, bytes_of(entry) end\n",
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
        "min(count / _FORGETS, 0.5)",
        "0.5",
        SIZES,
    ),
    python(
        "the password in a URL that cannot be read is shown",
        "redis/error_map",
        '        if "@" not in url and',
        "        if True or",
        "streams/test_faults",
    ),
    python(
        "small events come one by one where others are large",
        "streams/store/byte_limits",
        "            if is_like_it and total",
        "            if total",
        SIZES,
    ),
    python(
        "a timeout teaches nothing of sizes",
        "streams/store/byte_limits",
        "            self._seen[key] = max(self._size(key), self._most / (len(asked) * count)) * "
        "2\n",
        "            pass\n",
        SIZES,
    ),
    python(
        "a few small entries hide that large ones come",
        "streams/store/byte_limits",
        "        self._seen[key] = max(mean, before + (mean - before) * weight)\n",
        "        self._seen[key] = before + (mean - before) * weight\n",
        SIZES,
    ),
    python(
        "the same partitions are asked each time",
        "streams/store/byte_limits",
        "[*(key for key in order if key not in asked), *asked]",
        "[*asked, *(key for key in order if key not in asked)]",
        SIZES,
    ),
    python(
        "a partition holds events however large they are",
        "streams/consumer/reader",
        "owner.looks_ahead or owner.inbox.size < self._held.share",
        "True",
        LARGE,
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
        "                    self._most_bytes = max(self._most_bytes // 2, 1)\n",
        "",
        LANES,
    ),
    python(
        "what was too much for a call is forgotten with its answer",
        "streams/producer/appender",
        "min(self._most_bytes + max(int(limit * _GROWS_BY), 1), limit)",
        "limit",
        LANES,
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
        INBOX,
    ),
    python(
        "a commit has dead letters however large they are",
        "streams/consumer/buffer",
        "            if most_bytes is not None and any(",
        "            if False and any(",
        INBOX,
    ),
    python(
        "outputs go with a part of what is finished",
        "streams/consumer/committer",
        "            if self._inbox.passage() is None:\n",
        "            if self._inbox.passage(1) is None:\n",
        "../integration/streams/test_large_records",
    ),
    python(
        "a commit may have outputs of any size",
        "streams/consumer/committer",
        "    if size > limits.in_flight:\n",
        "    if False:\n",
        LARGE,
    ),
    python(
        "a read that came too late is asked again as large",
        "streams/consumer/reader",
        "            self._found_nothing.clear()\n            raise\n",
        "            raise\n",
        LARGE,
    ),
    python(
        "a batch waits for more where memory is full",
        "streams/consumer/owner",
        "(is_enough or is_over or self.is_full)",
        "(is_enough or is_over)",
        LARGE,
    ),
    python(
        "a processor that holds all its memory waits for more",
        "streams/consumer/owner",
        "        is_over = self.is_full and self.inbox.has_yielded\n",
        "        is_over = False\n",
        LARGE,
    ),
    python(
        "a full memory hides the events behind one that does not decode",
        "streams/consumer/owner",
        "        self.looks_ahead = True\n",
        "        pass\n",
        LARGE,
    ),
    python(
        "events of a refused commit count as finished",
        "streams/consumer/buffer",
        "            self.count_finished -= not entry.skipped\n",
        "",
        INBOX,
    ),
    base(
        "a hash of another format is taken for ours",
        "base",
        "  if found == FORMAT or not found",
        "  if true or not found",
        LAYOUT,
    ),
    base(
        "a hash may begin without its format",
        "base",
        "  redis.call('HSET', key, 'format', FORMAT, ...)",
        "  if #{...} > 0 then redis.call('HSET', key, ...) end",
        LAYOUT,
    ),
]
