-- The partition passes to the owner with this token, which gets the first events along.
-- KEYS: at, the partition's. ARGV: processor, token, start, first (how many events), loses (1: trimmed at any
-- price), then what this owner knows, or '': epoch, offset, the id it has read to; now; how many bytes the events have at most.
local at, stream, offsets = KEYS[1], KEYS[2], KEYS[3]
local processor, token, loses = ARGV[1], ARGV[2], ARGV[5] == '1'
local known_epoch, known_offset, seen = ARGV[6], ARGV[7], ARGV[8]
check_format(at)
local fence = redis.call('HGET', at, 'fence')
if fence and less(token, fence) then return {'stale', fence} end

local last = last_id(stream)
local found = redis.call('HMGET', at, 'epoch', 'anchored', 'marked')
local late = fence == token and found[3] and less(ARGV[9], found[3])  -- this owner took it again since
local offset = redis.call('HGET', offsets, processor)
local is_back = offset and (before(last, offset) or not found[1])  -- an epoch is there from the first offset on
  or offset and found[2] == '1' and not loses and not has_entry(stream, offset)
if known_epoch ~= '' then
  is_back = is_back or fence ~= token or not offset or less(found[1] or '0', known_epoch)
    or found[1] == known_epoch and before(offset, known_offset)
    or before(last, seen) or before(offset, seen) and not loses and not has_entry(stream, seen)
end
if is_back then return {'back', fence or 'none', offset or 'none', last} end

offset = register(at, partition(2), processor, ARGV[3])
found = redis.call('HMGET', at, 'epoch', 'open', 'suspect', 'careful', 'quarantined', 'ceiling', 'told')
local epoch, open, suspect, careful, quarantined, ceiling, told = unpack(found, 1, 7)
if open == '1' and fence ~= token then  -- whoever had it did not end in order
  careful = ceiling
  if suspect and before(offset, suspect) then redis.call('HINCRBY', at, 'end:' .. suspect, 1) end
  redis.call('HINCRBY', at, 'unclean', 1)
end
if careful and before(offset, careful) then redis.call('HSET', at, 'careful', careful)
else redis.call('HDEL', at, 'careful'); careful = nil end
local first, left_out = {}, 0
if not quarantined and tonumber(ARGV[4]) > 0 then
  first, left_out = entries(stream, offset, tonumber(ARGV[4]), tonumber(ARGV[10]))
end
if known_epoch == '' and not late then
  ceiling = #first > 0 and first[#first][1] or offset
  redis.call('HSET', at, 'ceiling', ceiling)
  redis.call('HDEL', at, 'suspect')
  -- Marked: an event that this owner named before this take, and of which we hear late, is not.
  redis.call('HSET', at, 'fence', token, 'open', quarantined and '0' or '1', 'marked', ARGV[9])
  if not careful then redis.call('HSET', at, 'told', ARGV[9]) end
end

local ends, all = {}, redis.call('HGETALL', at)
for i = 1, #all, 2 do
  local id = string.match(all[i], '^end:(.+)$')
  if id and before(offset, id) then
    ends[#ends + 1] = id
    ends[#ends + 1] = all[i + 1]
  elseif id then
    redis.call('HDEL', at, all[i])
  end
end
local paused = redis.call('HGET', at, 'paused') or ''
return {'ok', offset, epoch, careful or '', quarantined or '', ends, first, told or '0', paused, left_out}
