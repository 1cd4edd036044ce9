-- A partition: how events get in, how long they stay, and how many of them senders wait for.
--
-- Beside the stream lie two keys.
--   kept      a hash: `added`, how many events were ever added; `bytes`, how many bytes they had, names and values of
--             their fields together; `keep` (milliseconds) and `keep_bytes`, how long events stay (0: no bound; neither
--             is there: no program has said anything); `next_n`, `next_b` and `next_ms`, the end of the newest segment;
--             `replay:PROCESSOR`, an id (see `awaited`); `low` and `passed`, the last exact count of `unprocessed`.
--   segments  a stream with one entry for about a thousand events, a megabyte, or a 64th of `keep`. Its id is that of
--             the segment's first event; `n` and `b` say how many events and bytes had been added before that event.
-- What holds between any two steps:
--   1. Every event comes in by `add`, so `added` and `bytes` are the truth, and n and b are those of any start.
--   2. A segment that has an event in the stream has its entry: entries go only with all events before the next one.
--   3. With retention whole segments are removed, so what is kept is exactly `added - n` events of `bytes - b` bytes,
--      n and b being those of the first segment. Without it, the first one may have lost some of its events.
--   4. No event behind the lowest offset is ever removed, and the event at it is not, but for `loses`.
local SEGMENT_EVENTS, SEGMENT_BYTES = 1000, 1048576

local function whole(number)
  return string.format('%.0f', number)
end

local function ms_of(id)
  return tonumber(string.match(id, '^%d+'))
end

-- The partition as this step sees it. KEYS from `key` on: stream, offsets, lost, kept, segments. ARGV from `arg` on, if
-- given: limit (0: none), loses (1: drop the oldest to make room), keep and keep_bytes ('': leave them as they are).
local function partition(key, arg)
  local part = {
    stream = KEYS[key], offsets = KEYS[key + 1], lost = KEYS[key + 2], kept = KEYS[key + 3], segments = KEYS[key + 4],
  }
  local found = redis.call('HMGET', part.kept, 'added', 'bytes', 'keep', 'keep_bytes', 'next_n', 'next_b', 'next_ms', 'format')
  if found[8] ~= FORMAT then check_format(part.kept) end
  part.is_known, part.has_said = found[1], found[3]
  part.added, part.bytes = tonumber(found[1] or 0), tonumber(found[2] or 0)
  part.keep, part.keep_bytes = tonumber(found[3] or 0), tonumber(found[4] or 0)
  part.next_n, part.next_b, part.next_ms = tonumber(found[5] or 0), tonumber(found[6] or 0), tonumber(found[7] or nil)
  if arg then
    part.limit, part.loses = tonumber(ARGV[arg]), ARGV[arg + 1] == '1'
    if ARGV[arg + 2] ~= '' then part.says = {tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])} end
    -- A sender sets the retention only if there is none yet. Workers may change it, see retain.lua.
    if part.says and not part.has_said then part.keep, part.keep_bytes = unpack(part.says) end
  end
  part.is_kept = part.keep > 0 or part.keep_bytes > 0
  return part
end

-- Sets how long events stay, from the next segment on.
local function say(part)
  put(part.kept, 'keep', whole(part.says[1]), 'keep_bytes', whole(part.says[2]))
end

-- ── segments ────────────────────────────────────────────────────────────────────────────────────────────────────────

local function read_start(entry)
  return entry and {id = entry[1], n = tonumber(entry[2][2]), b = tonumber(entry[2][4])}
end

local function start_of(part, id)  -- of the segment with this id; nil where there is none
  return read_start(redis.call('XREVRANGE', part.segments, id, '-', 'COUNT', 1)[1])
end

local function first_start(part)
  return read_start(redis.call('XRANGE', part.segments, '-', '+', 'COUNT', 1)[1])
end

-- Starts a segment with this event, and stores the counters before it.
local function write_start(part, id, n, b)
  redis.call('XADD', part.segments, id, 'n', whole(n), 'b', whole(b))
end

local function start_segment(part, id)
  local newest = start_of(part, '+')
  if newest and not (part.is_known and before(newest.id, id)) then
    redis.call('DEL', part.segments)  -- `kept` was lost, so n begins anew; or the stream was, so ids do
  end
  write_start(part, id, part.added, part.bytes)
  local bytes = part.keep_bytes > 0 and math.min(SEGMENT_BYTES, part.keep_bytes / 8) or SEGMENT_BYTES
  part.next_n, part.next_b = part.added + SEGMENT_EVENTS, part.bytes + bytes
  part.next_ms = part.keep > 0 and ms_of(id) + part.keep / 64 or nil
  part.has_started, part.is_known = true, true
end

-- Adds an event; `save` must follow in the same step.
local function add(part, id, ...)
  local size, is_of_now = 0, id == '*' and part.has_added  -- all that are added in one step have one time
  for i = 1, select('#', ...) do size = size + #(select(i, ...)) end
  id = redis.call('XADD', part.stream, id, ...)
  if part.added >= part.next_n or part.bytes >= part.next_b
    or part.next_ms and not is_of_now and ms_of(id) >= part.next_ms then start_segment(part, id) end
  part.added, part.bytes, part.has_added = part.added + 1, part.bytes + size, true
  return id
end

-- ── what stays ──────────────────────────────────────────────────────────────────────────────────────────────────────

local function lower_of(id, other)
  return id and before(id, other) and id or other
end

-- The lowest offset of all registered processors; nil without any. The offset of `mine` counts as `moved`.
local function lowest(part, mine, moved)
  local found, all = nil, all_offsets(part.offsets)
  for i = 1, #all, 2 do found = lower_of(found, all[i] == mine and moved or all[i + 1]) end
  return found
end

-- Where all events are too old: the last one gets a segment of its own, and all before it can go. It shows that
-- nothing is missing.
local function start_at_last(part, low)
  local last = redis.call('XREVRANGE', part.stream, '+', '-', 'COUNT', 1)[1]
  if not last then return nil end
  local start = start_of(part, '+')
  if not start or not before(start.id, last[1]) or low and before(low, last[1]) then return start_of(part, last[1]) end
  write_start(part, last[1], part.added - 1, part.bytes - bytes_of(last))
  return start_of(part, last[1])
end

-- The segment with the last event that is old enough to go. It stays: it shows a reader whose window begins behind it
-- that the window is whole.
local function oldest_in_time(part, low)
  local time = redis.call('TIME')
  local from = math.max(time[1] * 1000 + math.floor(time[2] / 1000) - part.keep, 0)
  local young = redis.call('XRANGE', part.stream, whole(from) .. '-0', '+', 'COUNT', 1)[1]
  if young then
    local old = redis.call('XREVRANGE', part.stream, '(' .. young[1], '-', 'COUNT', 1)[1]
    return start_of(part, (old or young)[1])
  end
  return start_at_last(part, low)
end

-- The last segment, up to the lowest offset, that leaves at least `keep_bytes`. Each segment before it is read once, and
-- then removed.
local function oldest_in_bytes(part, low)
  local lowest_start = low and start_of(part, low)
  if lowest_start and part.bytes - lowest_start.b >= part.keep_bytes then return lowest_start end
  local found, from = nil, '-'
  repeat
    local page = redis.call('XRANGE', part.segments, from, low or '+', 'COUNT', 10)
    for _, entry in ipairs(page) do
      local start = read_start(entry)
      if part.bytes - start.b < part.keep_bytes then return found end
      found, from = start, '(' .. start.id
    end
  until #page < 10
  return found
end

-- The first segment that is kept; nil if all are. It does not lie behind `low`; with nil it may, processed or not.
local function oldest_kept(part, low)
  local start = part.keep > 0 and oldest_in_time(part, low)
  if part.keep_bytes > 0 then
    local other = oldest_in_bytes(part, low)
    if not start or other and before(start.id, other.id) then start = other end
  end
  if start and low and before(low, start.id) then start = start_of(part, low) end
  return start
end

local function trim_segments(part, start)
  redis.call('XTRIM', part.segments, 'MINID', start.id)
  return redis.call('XTRIM', part.stream, 'MINID', start.id)
end

-- Trims events that all processors have passed and that are not kept. Returns their number, 0 without a processor.
local function trim(part, mine, moved)
  local low = lowest(part, mine, moved)
  if not low or low == '0-0' then return 0 end
  if not part.is_kept then return redis.call('XTRIM', part.stream, 'MINID', low) end
  local start = oldest_kept(part, low)
  return start and trim_segments(part, start) or 0
end

-- How many of all events ever added lie up to an id. It reads the rest of one segment: nothing behind an offset is gone.
local function passed(part, id)
  local start = start_of(part, id)
  if not start then
    start = first_start(part)
    return start and start.n or part.added
  end
  local next_one = read_start(redis.call('XRANGE', part.segments, '(' .. start.id, '+', 'COUNT', 1)[1])
  local rest = redis.call('XRANGE', part.stream, '(' .. id, next_one and '(' .. next_one.id or '+')
  return (next_one and next_one.n or part.added) - #rest
end

local function count_lost(part, processor, count)
  if count <= 0 then return end
  put(part.lost)
  redis.call('HINCRBY', part.lost, processor, count)
end

-- Removes events that are not kept, processed or not, and counts for each processor those that it had not passed.
local function expire(part)
  local start = oldest_kept(part, nil)
  if not start then return end
  local all, unread = all_offsets(part.offsets), {}
  for i = 1, #all, 2 do unread[all[i]] = start.n - passed(part, all[i + 1]) end
  local gone = trim_segments(part, start)
  for processor, count in pairs(unread) do count_lost(part, processor, math.min(count, gone)) end
end

-- Ends what `add` has begun: counts, and where a segment was started, removes what is not kept. So that costs nothing
-- for each event, and there are never many more entries in `segments` than segments in the stream.
local function save(part)
  put(part.kept, 'added', whole(part.added), 'bytes', whole(part.bytes))
  if not part.has_started then return end
  redis.call('HSET', part.kept, 'next_n', whole(part.next_n), 'next_b', whole(part.next_b))
  if part.next_ms then redis.call('HSET', part.kept, 'next_ms', whole(part.next_ms))
  else redis.call('HDEL', part.kept, 'next_ms') end
  if part.says and not part.has_said then say(part) end
  if part.is_kept and part.loses then expire(part)
  elseif part.is_kept then trim(part, '', '') end
  local first = redis.call('XRANGE', part.stream, '-', '+', 'COUNT', 1)[1]
  local start = first and start_of(part, first[1])
  if start then redis.call('XTRIM', part.segments, 'MINID', start.id) end
end

-- ── for whom senders wait ───────────────────────────────────────────────────────────────────────────────────────────

-- Moves an offset anywhere. If it moves back, the present events are a replay, for which senders do not wait.
local function move_offset(part, processor, to)
  local was = redis.call('HGET', part.offsets, processor)
  put(part.offsets, processor, to)
  if was and not before(to, was) then return end
  -- Something else may lie there: who takes the partition says so, and the others go on.
  local is_there = redis.call('TYPE', part.stream).ok == 'stream'
  put(part.kept, 'replay:' .. processor, is_there and last_id(part.stream) or '0-0')
end

-- Senders wait for events behind this id; nil where nobody is registered. A processor that was registered, or reset to
-- before events that are kept, is waited for from what was the end then: it replays them while senders go on.
local function awaited(part, mine, moved)
  local found, all, fields = nil, all_offsets(part.offsets), {}
  if #all == 0 then return nil end
  for i = 1, #all, 2 do fields[#fields + 1] = 'replay:' .. all[i] end
  local replays = redis.call('HMGET', part.kept, unpack(fields))
  for i = 1, #all, 2 do
    local offset, replay = all[i] == mine and moved or all[i + 1], replays[(i + 1) / 2]
    if replay and before(offset, replay) then offset = replay end
    found = lower_of(found, offset)
  end
  return found
end

-- How many events some processor has not passed, replays left out; where that is `enough` or fewer, an upper bound. All,
-- where nobody is registered.
-- An exact count goes on from the one before, so that each event is read once for it, as long as the segment is the same:
-- none of that segment's events is gone.
local function unprocessed(part, enough, mine, moved, only_reads)
  local from, length = awaited(part, mine, moved), redis.call('XLEN', part.stream)
  if not from then return length end
  local start = start_of(part, from)
  local n = (start or first_start(part) or {n = 0}).n
  local most = math.min(length, part.added - n)
  if most <= enough then return most end
  local known, count = redis.call('HMGET', part.kept, 'low', 'passed'), nil
  if start and known[1] and not before(known[1], start.id) and not before(from, known[1]) then
    count = known[2] + #redis.call('XRANGE', part.stream, '(' .. known[1], from)
  else
    count = passed(part, from)
  end
  if not only_reads then put(part.kept, 'low', from, 'passed', whole(count)) end
  local found = math.min(length, part.added - count)
  if found <= enough then return found end
  -- Senders must not wait for events that somebody has removed by hand.
  local last = redis.call('XREVRANGE', part.stream, '+', '-', 'COUNT', 1)[1]
  return last and before(from, last[1]) and found or 0
end

-- ── room ────────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Drops the oldest events, and counts for each processor those that it had not passed.
local function drop_oldest(part, count)
  local oldest = redis.call('XRANGE', part.stream, '-', '+', 'COUNT', count)
  local all = all_offsets(part.offsets)
  for i = 1, #all, 2 do
    local unread = 0
    for _, entry in ipairs(oldest) do
      if before(all[i + 1], entry[1]) then unread = unread + 1 end
    end
    count_lost(part, all[i], unread)
  end
  redis.call('XTRIM', part.stream, 'MAXLEN', redis.call('XLEN', part.stream) - #oldest)
end

-- How many events fit with retention, which `limit` does not bound: it bounds what is not processed, or with `loses`
-- nothing.
local function room_of_kept(part, wanted, mine, moved)
  if part.loses then return wanted end
  return part.limit - unprocessed(part, part.limit - wanted, mine, moved)
end

-- How many events fit, after an effort if that is fewer than wanted.
local function room(part, wanted, mine, moved)
  local free = part.limit - redis.call('XLEN', part.stream)
  if free >= wanted then return free end
  if part.is_kept then return room_of_kept(part, wanted, mine, moved) end
  free = free + trim(part, mine, moved)
  if free >= wanted or not part.loses then return free end
  drop_oldest(part, math.min(wanted, part.limit) - free)
  return part.limit - redis.call('XLEN', part.stream)
end

-- Like `room`, without removing anything: how many events could fit, counted up to the wanted number.
local function could_have(part, wanted, mine, moved)
  if part.is_kept then return room(part, wanted, mine, moved) end
  local free = part.limit - redis.call('XLEN', part.stream)
  local id = lowest(part, mine, moved)
  if free < wanted and id and id ~= '0-0' then
    free = free + #redis.call('XRANGE', part.stream, '-', '(' .. id, 'COUNT', wanted - free)
  end
  return part.loses and math.max(free, math.min(wanted, part.limit)) or free
end

-- Registers a processor: from here on trimming waits for it. Returns its offset.
local function register(at, part, processor, start)
  check_format(at)
  check_format(part.offsets)
  local offset = redis.call('HGET', part.offsets, processor)
  if not offset then
    offset = start == 'latest' and last_id(part.stream) or '0-0'
    move_offset(part, processor, offset)
    put(at, 'anchored', '0')
    redis.call('HINCRBY', at, 'epoch', 0)
  end
  return offset
end
