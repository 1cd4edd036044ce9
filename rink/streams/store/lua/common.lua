-- What the scripts of streams have in common.
local function before(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)-(%d+)$')
  if a_ms ~= b_ms then return less(a_ms, b_ms) end
  return less(a_seq, b_seq)
end

-- Each registered processor's offset, as names and offsets in turn.
local function all_offsets(offsets)
  local found, all = {}, redis.call('HGETALL', offsets)
  for i = 1, #all, 2 do
    if all[i] ~= 'format' then found[#found + 1], found[#found + 2] = all[i], all[i + 1] end
  end
  return found
end

local function has_entry(stream, id)
  return #redis.call('XRANGE', stream, id, id) > 0
end

local function bytes_of(entry)
  local size = 0
  for _, text in ipairs(entry[2]) do size = size + #text end
  return size
end

-- The entries behind an id, limited by count and bytes; none if the first one alone exceeds the bytes.
-- Then the bytes of the entry behind them, if it was left out because of its size; otherwise 0.
local function entries(stream, id, most, bytes)
  local found, left, size = {}, bytes, 1
  while #found < most do
    size = math.min(size, most - #found)
    local page = redis.call('XRANGE', stream, '(' .. id, '+', 'COUNT', size)
    for _, entry in ipairs(page) do
      left = left - bytes_of(entry)
      if left < 0 then return found, bytes_of(entry) end
      found[#found + 1] = entry
    end
    if #page < size then return found, 0 end
    -- The next page is half of what is left, if its entries are as large as those before.
    id, size = page[#page][1], math.max(1, math.floor(#found * left / (bytes - left + 1) / 2))
  end
  return found, 0
end

local function last_id(stream)
  if redis.call('EXISTS', stream) == 0 then return '0-0' end
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return info[i + 1] end
  end
end

-- An operator has decided: earlier crashes count no more, and a present owner takes the partition again.
local function begin_anew(at)
  put(at, 'anchored', '0')
  redis.call('HINCRBY', at, 'epoch', 1)
  redis.call('HDEL', at, 'quarantined', 'suspect', 'careful', 'ceiling', 'told')
  local all = redis.call('HKEYS', at)
  for _, field in ipairs(all) do
    if string.match(field, '^end:') then redis.call('HDEL', at, field) end
  end
end

-- Why the owner with this token may not advance from `expected` to `new`; nil where it may.
local function objection(at, offsets, processor, token, epoch, expected, new)
  local found = redis.call('HMGET', at, 'fence', 'epoch')
  local fence, now, offset = found[1], found[2], redis.call('HGET', offsets, processor)
  if fence and less(token, fence) then return {'stale', fence} end
  if fence ~= token or not offset or not now or less(now, epoch) then
    return {'back', fence or 'none', offset or 'none'}
  end
  if now ~= epoch then return {'moved', offset} end
  if offset == expected then return nil end
  if offset == new then return {'ok'} end
  if before(offset, expected) then return {'back', fence, offset} end
  return {'moved', offset}
end

-- Events up to this id may be yielded; what comes late, and is lower, changes nothing. Whether it was higher.
local function raise_ceiling(at, to)
  local ceiling = redis.call('HGET', at, 'ceiling')
  if ceiling and not before(ceiling, to) then return false end
  put(at, 'ceiling', to)
  return true
end

-- Whether the owner with this token and epoch still is the owner; an answer where it is not.
local function dismissal(at, token, epoch)
  local found = redis.call('HMGET', at, 'fence', 'epoch')
  if found[1] and less(token, found[1]) then return {'stale', found[1]} end
  if found[2] and less(epoch, found[2]) then return {'moved', ''} end
  return nil
end
