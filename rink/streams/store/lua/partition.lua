-- Defines a partition: how events are added, how long they stay, and for which events senders wait.
--
-- A partition has two more keys beside the stream.
--   kept      a hash:
--             `added`    how many events were ever added
--             `bytes`    how many bytes they had, names and values of their fields together
--             `keep`, `keep_bytes`  how long events stay, in milliseconds and bytes (0: no bound);
--                        without these fields, no program has set a retention
--             `next_n`, `next_b`, `next_ms`  the end of the newest segment
--             `replay:PROCESSOR`  an id, see `awaited`
--             `low`, `passed`  the last exact count of `unprocessed`
--   segments  a stream with one entry for each segment: about a thousand events, a megabyte, or
--             a 64th of `keep`. The entry's id is that of the segment's first event. `n` and `b`
--             are the events and bytes that had been added before that event.
-- Invariants between any two steps:
--   1. Every event is added by `add`. So `added` and `bytes` are exact, and so are `n` and `b` of
--      each segment.
--   2. A segment with an event in the stream has its entry. An entry is removed only together with
--      all events before the next entry.
--   3. With retention, whole segments are removed. So exactly `added - n` events of `bytes - b`
--      bytes are kept, with `n` and `b` of the first segment. Without retention, the first segment
--      may have lost some of its events.
--   4. No event behind the lowest offset is ever removed, and neither is the event at it. Only
--      `loses` breaks this rule.
local SEGMENT_EVENTS, SEGMENT_BYTES = 1000, 1048576

local function whole(number)
  return string.format('%.0f', number)
end

local function ms_of(id)
  return tonumber(string.match(id, '^%d+'))
end

-- Reads the partition, as this step sees it.
--   key     the first of the partition's 5 in KEYS
--   bounds  what the program declares: limit, loses and retention; nil if the step has none
-- `is_known` is true if Redis has the counters, and `has_retention` if it has a retention.
local function partition(key, bounds)
  local part = {
    stream = KEYS[key], offsets = KEYS[key + 1], lost = KEYS[key + 2], kept = KEYS[key + 3],
    segments = KEYS[key + 4],
  }
  local added, bytes, keep, keep_bytes, next_n, next_b, next_ms, format = fields_of(
    part.kept, 'added', 'bytes', 'keep', 'keep_bytes', 'next_n', 'next_b', 'next_ms', 'format'
  )
  if format ~= FORMAT then check_format(part.kept) end
  part.is_known, part.has_retention = added, keep
  part.added, part.bytes = tonumber(added or 0), tonumber(bytes or 0)
  part.keep, part.keep_bytes = tonumber(keep or 0), tonumber(keep_bytes or 0)
  part.next_n, part.next_b = tonumber(next_n or 0), tonumber(next_b or 0)
  part.next_ms = tonumber(next_ms or nil)
  if bounds then
    part.limit, part.loses, part.declared = bounds.limit, bounds.loses, bounds.retention
    -- A sender sets the retention only if there is none yet. Workers may change it, see retain.lua.
    if part.declared and not part.has_retention then
      part.keep, part.keep_bytes = part.declared.ms, part.declared.size
    end
  end
  part.is_kept = part.keep > 0 or part.keep_bytes > 0
  return part
end

-- Stores the declared retention.
local function store_retention(part)
  put(part.kept, 'keep', whole(part.declared.ms), 'keep_bytes', whole(part.declared.size))
end

-- ── segments ────────────────────────────────────────────────────────────────────────────────────

local function read_start(entry)
  return entry and {id = entry[1], n = tonumber(entry[2][2]), b = tonumber(entry[2][4])}
end

-- Returns the start of the segment with this id; nil if there is none.
local function start_of(part, id)
  return read_start(redis.call('XREVRANGE', part.segments, id, '-', 'COUNT', 1)[1])
end

local function first_start(part)
  return read_start(redis.call('XRANGE', part.segments, '-', '+', 'COUNT', 1)[1])
end

-- Stores the start of a segment: its first event, and the counters before that event.
local function write_start(part, id, n, b)
  redis.call('XADD', part.segments, id, 'n', whole(n), 'b', whole(b))
end

local function start_segment(part, id)
  local newest = start_of(part, '+')
  if newest and not (part.is_known and before(newest.id, id)) then
    -- Redis has lost `kept`, so that `n` starts again, or the stream, so that ids start again.
    redis.call('DEL', part.segments)
  end
  write_start(part, id, part.added, part.bytes)
  local bytes = SEGMENT_BYTES
  if part.keep_bytes > 0 then bytes = math.min(SEGMENT_BYTES, part.keep_bytes / 8) end
  part.next_n, part.next_b = part.added + SEGMENT_EVENTS, part.bytes + bytes
  part.next_ms = part.keep > 0 and ms_of(id) + part.keep / 64 or nil
  part.has_started, part.is_known = true, true
end

-- Adds an event; `save` must follow in the same step.
local function add(part, id, ...)
  -- All events that one step adds have the same time.
  local size, has_same_time = 0, id == '*' and part.has_added
  for i = 1, select('#', ...) do size = size + #(select(i, ...)) end
  id = redis.call('XADD', part.stream, id, ...)
  if part.added >= part.next_n or part.bytes >= part.next_b
    or part.next_ms and not has_same_time and ms_of(id) >= part.next_ms then
    start_segment(part, id)
  end
  part.added, part.bytes, part.has_added = part.added + 1, part.bytes + size, true
  return id
end

-- ── retention ───────────────────────────────────────────────────────────────────────────────────

-- Returns the lower of two ids; the first may be nil.
local function lower_of(id, other)
  return id and before(id, other) and id or other
end

-- Returns the offset of the processor all[i]. If this step will write a commit, it is in `commit`,
-- and its offset `new` counts already.
local function offset_at(all, i, commit)
  return commit and all[i] == commit.processor and commit.new or all[i + 1]
end

-- Returns the lowest offset of all registered processors; nil without any.
local function lowest(part, commit)
  local lowest_offset, all = nil, all_offsets(part.offsets)
  for i = 1, #all, 2 do lowest_offset = lower_of(lowest_offset, offset_at(all, i, commit)) end
  return lowest_offset
end

-- Returns the start of the last segment, if all events are too old. The last event gets a segment
-- of its own if all processors have passed it, so that all events before it can go. The last event
-- stays: it shows that nothing is missing.
local function start_at_last(part, low)
  local last = redis.call('XREVRANGE', part.stream, '+', '-', 'COUNT', 1)[1]
  if not last then return nil end
  local start = start_of(part, '+')
  if not start or not before(start.id, last[1]) or low and before(low, last[1]) then
    return start_of(part, last[1])
  end
  write_start(part, last[1], part.added - 1, part.bytes - bytes_of(last))
  return start_of(part, last[1])
end

-- Returns the segment with the last event that is old enough to go. This segment stays: it shows
-- a reader whose window begins behind it that the window is whole.
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

-- Returns the last segment, up to the lowest offset, that leaves at least `keep_bytes`. Each
-- segment before it is read once, and then removed.
local function oldest_in_bytes(part, low)
  local lowest_start = low and start_of(part, low)
  if lowest_start and part.bytes - lowest_start.b >= part.keep_bytes then return lowest_start end
  local oldest, from = nil, '-'
  repeat
    local page = redis.call('XRANGE', part.segments, from, low or '+', 'COUNT', 10)
    for _, entry in ipairs(page) do
      local start = read_start(entry)
      if part.bytes - start.b < part.keep_bytes then return oldest end
      oldest, from = start, '(' .. start.id
    end
  until #page < 10
  return oldest
end

-- Returns the first segment that is kept; nil if all are. It does not lie behind `low`. Without
-- `low`, also events that were not processed may go.
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

-- Trims events that all processors have passed and that are not kept. Returns their number, which
-- is 0 without a processor.
local function trim(part, commit)
  local low = lowest(part, commit)
  if not low or low == '0-0' then return 0 end
  if not part.is_kept then return redis.call('XTRIM', part.stream, 'MINID', low) end
  local start = oldest_kept(part, low)
  return start and trim_segments(part, start) or 0
end

-- Returns how many of all events ever added lie up to an id. It reads only the rest of the id's
-- segment. That is exact for an offset, since no event behind it has been removed (invariant 4).
local function passed(part, id)
  local start = start_of(part, id)
  if not start then
    start = first_start(part)
    return start and start.n or part.added
  end
  local following = redis.call('XRANGE', part.segments, '(' .. start.id, '+', 'COUNT', 1)
  local next_start = read_start(following[1])
  local to = next_start and '(' .. next_start.id or '+'
  local rest = redis.call('XRANGE', part.stream, '(' .. id, to)
  return (next_start and next_start.n or part.added) - #rest
end

local function count_lost(part, processor, count)
  if count <= 0 then return end
  put(part.lost)
  redis.call('HINCRBY', part.lost, processor, count)
end

-- Removes events that are not kept, processed or not, and counts for each processor the events that
-- it had not passed.
local function expire(part)
  local start = oldest_kept(part, nil)
  if not start then return end
  local all, unread = all_offsets(part.offsets), {}
  for i = 1, #all, 2 do unread[all[i]] = start.n - passed(part, all[i + 1]) end
  local gone = trim_segments(part, start)
  for processor, count in pairs(unread) do count_lost(part, processor, math.min(count, gone)) end
end

-- Completes the calls of `add` in this step. It stores the counters. If a segment was started, it
-- also removes the events that are not kept. So the removal costs nothing for each event, and
-- `segments` never has many more entries than the stream has segments.
local function save(part)
  put(part.kept, 'added', whole(part.added), 'bytes', whole(part.bytes))
  if not part.has_started then return end
  redis.call('HSET', part.kept, 'next_n', whole(part.next_n), 'next_b', whole(part.next_b))
  if part.next_ms then redis.call('HSET', part.kept, 'next_ms', whole(part.next_ms))
  else redis.call('HDEL', part.kept, 'next_ms') end
  if part.declared and not part.has_retention then store_retention(part) end
  if part.is_kept and part.loses then expire(part)
  elseif part.is_kept then trim(part) end
  local first = redis.call('XRANGE', part.stream, '-', '+', 'COUNT', 1)[1]
  local start = first and start_of(part, first[1])
  if start then redis.call('XTRIM', part.segments, 'MINID', start.id) end
end

-- ── unprocessed events ──────────────────────────────────────────────────────────────────────────

-- Moves an offset anywhere. If it moves back, the present events are a replay, for which senders do
-- not wait.
local function move_offset(part, processor, to)
  local was = redis.call('HGET', part.offsets, processor)
  put(part.offsets, processor, to)
  if was and not before(to, was) then return end
  -- Another type of key may lie there. A take of the partition fails then, and this step continues.
  local is_there = redis.call('TYPE', part.stream).ok == 'stream'
  put(part.kept, 'replay:' .. processor, is_there and last_id(part.stream) or '0-0')
end

-- Returns the id behind which senders wait for events; nil without a registered processor. When
-- a processor is registered or reset, the events up to the end of the stream at that time are its
-- replay. Senders do not wait for a replay.
local function awaited(part, commit)
  local lowest_offset, all, fields = nil, all_offsets(part.offsets), {}
  if #all == 0 then return nil end
  for i = 1, #all, 2 do fields[#fields + 1] = 'replay:' .. all[i] end
  local replays = redis.call('HMGET', part.kept, unpack(fields))
  for i = 1, #all, 2 do
    local offset, replay = offset_at(all, i, commit), replays[(i + 1) / 2]
    if replay and before(offset, replay) then offset = replay end
    lowest_offset = lower_of(lowest_offset, offset)
  end
  return lowest_offset
end

-- Returns how many events some processor has not passed, without replays. If that is `enough` or
-- fewer, the result may be an upper bound. Without a registered processor, all events count.
--
-- An exact count continues from the last exact count, `low` and `passed`, so that each event is
-- read once. This is right only if both ids lie in one segment, since then none of the events
-- between them has been removed.
local function unprocessed(part, enough, commit, only_reads)
  local from, length = awaited(part, commit), redis.call('XLEN', part.stream)
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
  local behind = math.min(length, part.added - count)
  if behind <= enough then return behind end
  -- Senders must not wait for events that an operator has removed by hand.
  local last = redis.call('XREVRANGE', part.stream, '+', '-', 'COUNT', 1)[1]
  return last and before(from, last[1]) and behind or 0
end

-- ── room ────────────────────────────────────────────────────────────────────────────────────────

-- Drops the oldest events, and counts for each processor the events that it had not passed.
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

-- Returns how many events fit, with retention. Then `limit` bounds only the unprocessed events, and
-- with `loses` nothing.
local function room_of_kept(part, wanted, commit)
  if part.loses then return wanted end
  return part.limit - unprocessed(part, part.limit - wanted, commit)
end

-- Returns how many events fit. If fewer than wanted fit, it first removes events.
local function room(part, wanted, commit)
  local free = part.limit - redis.call('XLEN', part.stream)
  if free >= wanted then return free end
  if part.is_kept then return room_of_kept(part, wanted, commit) end
  free = free + trim(part, commit)
  if free >= wanted or not part.loses then return free end
  drop_oldest(part, math.min(wanted, part.limit) - free)
  return part.limit - redis.call('XLEN', part.stream)
end

-- Returns how many events `room` could make fit, without removing any. It counts up to the wanted
-- number.
local function could_have(part, wanted, commit)
  if part.is_kept then return room(part, wanted, commit) end
  local free = part.limit - redis.call('XLEN', part.stream)
  local id = lowest(part, commit)
  if free < wanted and id and id ~= '0-0' then
    free = free + #redis.call('XRANGE', part.stream, '-', '(' .. id, 'COUNT', wanted - free)
  end
  return part.loses and math.max(free, math.min(wanted, part.limit)) or free
end

-- Registers a processor, so that trimming waits for it from now on. Returns its offset.
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
