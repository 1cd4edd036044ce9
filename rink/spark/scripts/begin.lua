-- A new query becomes a group of the stream; asked again before it has advanced, it answers the same.
-- KEYS: at, offsets, stream. ARGV: group, token, start ('earliest', 'latest', or an id: the greatest entry up to there
-- counts). An offset is the id of an entry, or 0-0: before all that there was.
local at, offsets, stream, group = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local found = redis.call('HMGET', at, 'fence', 'advanced', 'from')
if found[1] and less(ARGV[2], found[1]) then return {'stale', found[1]} end
local offset = redis.call('HGET', offsets, group)
if offset and not found[3] then return {'worker', offset} end
if offset and found[2] == '1' then return {'used', offset} end
if offset then return {'ok', found[3]} end
return {'ok', registered(at, offsets, stream, group, entry_at(stream, ARGV[3]), '0')}
