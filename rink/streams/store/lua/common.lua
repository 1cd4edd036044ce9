-- Defines the functions that the scripts of streams share. Several scripts have these in common:
--   "the partition's 5" keys are stream, offsets, lost, kept and segments;
--   `bounds` are limit (0: none), loses (drop the oldest events to make room) and retention (ms and
--   size; left out: leave it as it is). `partition` reads both.
--   `now_us` is the owner's time in microseconds, as text.
--
-- `at` is the hash of one processor in one partition:
--   format       the format of Rink's data
--   fence        the token of the last owner
--   open         1: the owner has not ended, or has crashed; 0: it has shut down cleanly
--   epoch        how often an operator has moved the offset or accepted the data
--   anchored     1: a commit wrote the offset, so its event must still exist
--   ceiling      the last event that this owner may have begun
--   careful      the last event that an earlier owner may have begun before its crash
--   suspect      the event that is being processed alone
--   marked       the time of the last mark or take; an earlier mark that arrives later is ignored
--   told         the time of the last step that said which events an owner begins
--   end:ID       how many owners have ended while event ID was the suspect
--   quarantined  the reason; the partition is not processed
--   paused       1: an operator has paused the processor
--   processed, dead, unclean  counters of events, dead letters and crashes

-- Returns whether id a comes before id b.
local function before(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if a_ms ~= b_ms then return less(a_ms, b_ms) end
  return less(a_seq, b_seq)
end

-- Returns the offset of each registered processor, as names and offsets in turn.
local function all_offsets(offsets)
  local named, all = {}, redis.call('HGETALL', offsets)
  for i = 1, #all, 2 do
    if all[i] ~= 'format' then named[#named + 1], named[#named + 2] = all[i], all[i + 1] end
  end
  return named
end

local function has_entry(stream, id)
  return #redis.call('XRANGE', stream, id, id) > 0
end

local function bytes_of(entry)
  local size = 0
  for _, text in ipairs(entry[2]) do size = size + #text end
  return size
end

-- Returns the entries behind an id, limited by count and bytes. There are none if the first entry
-- alone exceeds the bytes. The second result is the size of the next entry if it was left out
-- because of its size, and otherwise 0.
local function entries(stream, id, max_count, bytes)
  local read, left, size = {}, bytes, 1
  while #read < max_count do
    size = math.min(size, max_count - #read)
    local page = redis.call('XRANGE', stream, '(' .. id, '+', 'COUNT', size)
    for _, entry in ipairs(page) do
      left = left - bytes_of(entry)
      if left < 0 then return read, bytes_of(entry) end
      read[#read + 1] = entry
    end
    if #page < size then return read, 0 end
    -- The next page takes half of the bytes that are left, if its entries are as large as earlier
    -- entries. So a page of larger entries costs at most a few reads in vain.
    id, size = page[#page][1], math.max(1, math.floor(#read * left / (bytes - left + 1) / 2))
  end
  return read, 0
end

local function last_id(stream)
  if redis.call('EXISTS', stream) == 0 then return '0-0' end
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end

-- Ends the effect of earlier crashes, after an operator's decision. A present owner sees the new
-- epoch, and retakes the partition.
local function begin_anew(at)
  put(at, 'anchored', '0')
  redis.call('HINCRBY', at, 'epoch', 1)
  redis.call('HDEL', at, 'quarantined', 'suspect', 'careful', 'ceiling', 'told')
  local all = redis.call('HKEYS', at)
  for _, field in ipairs(all) do
    if string.match(field, '^end:') then redis.call('HDEL', at, field) end
  end
end

-- Returns why the owner with this token may not advance from `expected` to `new`; nil, and the
-- ceiling, if it may.
--
-- The order of the checks matters. A lower token is always stale. Then the fence must be exactly
-- this token, with an offset and an epoch that is not lower. If not, Redis has lost this owner's
-- writes. Only then does a higher epoch mean that an operator moved the offset. With the
-- same token and epoch, only this owner can have moved the offset since `expected`. So an offset
-- equal to `new` means that this commit was done and its answer lost: the retry is answered 'ok'.
-- An offset before `expected` means that Redis lost a commit.
local function objection(at, offsets, processor, token, epoch, expected, new)
  local fence, now, ceiling = fields_of(at, 'fence', 'epoch', 'ceiling')
  local offset = redis.call('HGET', offsets, processor)
  if fence and less(token, fence) then return {'stale', fence} end
  if fence ~= token or not offset or not now or less(now, epoch) then
    return {'back', fence or 'none', offset or 'none'}
  end
  if now ~= epoch then return {'moved', offset} end
  if offset == expected then return nil, ceiling end
  if offset == new then return {'ok'} end
  if before(offset, expected) then return {'back', fence, offset} end
  return {'moved', offset}
end

-- Raises the ceiling, the last event that may be yielded, and sets other fields with it. A lower id
-- arrives late and changes nothing. Returns whether the ceiling was raised.
local function raise_ceiling(at, ceiling, to, ...)
  if ceiling and not before(ceiling, to) then return false end
  put(at, 'ceiling', to, ...)
  return true
end

-- Returns the refusal of an owner that has been replaced, or whose offset was moved; otherwise nil,
-- and the ceiling.
local function dismissal(at, token, epoch)
  local fence, now, ceiling = fields_of(at, 'fence', 'epoch', 'ceiling')
  if fence and less(token, fence) then return {'stale', fence} end
  if now and less(epoch, now) then return {'moved', ''} end
  return nil, ceiling
end
