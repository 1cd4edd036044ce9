"""Break retention: what is kept, what is counted, and what senders await."""

from __future__ import annotations

from mutants_of_streams import lua, python

KEEP = "streams/test_retention_in_memory"
COUNTERS = "../integration/streams/test_retention_counters"
SERVERS = "../integration/streams/test_servers_of_redis"
OFFSETS = "streams/test_offsets_in_memory"
MONITOR = "streams/test_monitor"

RETENTION = [
    lua(
        "retention removes what some processor has not passed",
        "partition",
        "  if start and low and before(low, start.id) then start = start_of(part, low) end\n",
        "",
        KEEP,
        COUNTERS,
    ),
    lua(
        "retention removes what nobody is registered for",
        "partition",
        "  if not low or low == '0-0' then return 0 end\n",
        "  if low == '0-0' then return 0 end\n",
        COUNTERS,
    ),
    lua(
        "what all have passed goes, whatever is to be kept",
        "partition",
        "  if not part.is_kept then return redis.call('XTRIM'",
        "  if true then return redis.call('XTRIM'",
        KEEP,
    ),
    lua(
        "events stay for ever where something is sent",
        "partition",
        "  elseif part.is_kept then trim(part) end\n",
        "  end\n",
        KEEP,
        COUNTERS,
    ),
    lua(
        "an event stays half as long as it should",
        "partition",
        "math.floor(time[2] / 1000) - part.keep, 0)",
        "math.floor(time[2] / 1000) - part.keep / 2, 0)",
        COUNTERS,
    ),
    lua(
        "fewer bytes are kept than were asked for",
        "partition",
        "      if part.bytes - start.b < part.keep_bytes then return oldest end\n",
        "      if part.bytes - start.b < part.keep_bytes then return start end\n",
        KEEP,
    ),
    lua(
        "bytes are not counted",
        "partition",
        "part.added, part.bytes, part.has_added = part.added + 1, part.bytes + size, true",
        "part.added, part.bytes, part.has_added = part.added + 1, part.bytes, true",
        KEEP,
        COUNTERS,
    ),
    lua(
        "what an append adds is not written down",
        "append",
        "if count > 0 then save(part) end\n",
        "",
        KEEP,
        COUNTERS,
    ),
    lua(
        "outputs are not counted",
        "commit",
        "for _, part in pairs(parts) do save(part) end\n",
        "",
        COUNTERS,
    ),
    lua("a requeued event is not counted", "requeue", "save(part)\n", "", COUNTERS),
    lua(
        "senders wait for what is kept",
        "partition",
        "  if part.is_kept then return room_of_kept(part, wanted, commit) end\n  free = free",
        "  free = free",
        KEEP,
    ),
    lua(
        "senders wait for a replay",
        "partition",
        "    if replay and before(offset, replay) then offset = replay end\n",
        "",
        KEEP,
        COUNTERS,
    ),
    lua(
        "senders wait for a processor that was reset",
        "partition",
        "  put(part.kept, 'replay:' .. processor, is_there and last_id(part.stream) or '0-0')\n",
        "",
        KEEP,
        COUNTERS,
    ),
    lua(
        "a count goes on from one of another segment",
        "partition",
        "  if start and known[1] and not before(known[1], start.id) and",
        "  if start and known[1] and",
        COUNTERS,
    ),
    lua(
        "what an operator has removed holds senders back",
        "partition",
        "  return last and before(from, last[1]) and behind or 0\n",
        "  return behind\n",
        KEEP,
    ),
    lua(
        "segments outlive the counts that they go with",
        "partition",
        "  if newest and not (part.is_known and before(newest.id, id)) then",
        "  if false then",
        KEEP,
    ),
    lua(
        "what a log drops is not counted",
        "partition",
        "  for processor, count in pairs(unread) do count_lost(part, processor, math.min(count, "
        "gone)) end\n",
        "",
        COUNTERS,
    ),
    lua(
        "senders of a log wait",
        "partition",
        "  if part.loses then return wanted end\n",
        "",
        KEEP,
    ),
    lua(
        "a program that says nothing ends retention",
        "partition",
        "    if part.declared and not part.has_retention then",
        "    if not part.declared then part.keep, part.keep_bytes = 0, 0 else",
        KEEP,
    ),
    python(
        "an idle partition is not trimmed",
        "streams/consumer/monitor",
        "    if owner.place.bounds.retention:",
        "    if False:",
        MONITOR,
        KEEP,
    ),
    python(
        "a reset does not tell what is gone",
        "streams/admin/offsets",
        "        is_gone = look.removed and",
        "        is_gone = False and",
        KEEP,
    ),
    python(
        "a time without a zone is where the operator is",
        "streams/store/entry_ids",
        "    at = at if at.tzinfo else at.replace(tzinfo=UTC)",
        "    at = at if at.tzinfo else at.replace(tzinfo=UTC) - timedelta(hours=3)",
        OFFSETS,
    ),
    python(
        "closing an app raises where Redis is away",
        "redis/async_client",
        "        except (RedisError, OSError, TimeoutError) as error:",
        "        except ZeroDivisionError as error:",
        SERVERS,
    ),
    python(
        "evictions are not told of",
        "streams/consumer/eviction_check",
        "        if before is None or evicted <= before:",
        "        if True:",
        SERVERS,
    ),
    python(
        "a policy that evicts is not told of",
        "streams/consumer/eviction_check",
        '        if policy in ("", _KEEPS_ALL):',
        "        if True:",
        SERVERS,
    ),
    lua(
        "retention that Redis has lost stays lost",
        "trim",
        "if part.declared and not part.has_retention then store_retention(part) end",
        "if false then store_retention(part) end",
        KEEP,
    ),
    lua(
        "events are counted by counters that Redis has lost",
        "look",
        "local start = part.is_known and first and",
        "local start = first and",
        KEEP,
        COUNTERS,
    ),
]
