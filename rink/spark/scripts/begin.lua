-- A new query becomes a group of the stream; asked again before it has advanced, it answers the same.
-- KEYS: at, offsets, stream. ARGV: group, token, run, who, start ('earliest', 'latest', or an id: the greatest entry
-- up to there counts). An offset is the id of an entry, or 0-0: before all that there was.
local at, offsets, stream, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local found = redis.call('HMGET', at, 'fence', 'advanced', 'asked', 'from')
if found[1] and less(ARGV[2], found[1]) then return {'stale', found[1]} end
local offset = redis.call('HGET', offsets, group)
if offset and not found[4] then return {'worker', offset} end
if offset and found[2] == '1' then return {'used', offset, redis.call('HGET', at, 'who')} end

local from = found[4]
if not offset or found[3] ~= ARGV[5] then
  from = entry_at(stream, ARGV[5])
  redis.call('HSET', offsets, group, from)
  redis.call('HSET', at, 'from', from, 'asked', ARGV[5], 'removed', removed(stream), 'anchored', '0')
  redis.call('HINCRBY', at, 'epoch', 0)
end
redis.call('HSET', at, 'fence', ARGV[2], 'run', ARGV[3], 'who', ARGV[4], 'advanced', '0')
return {'ok', from}
