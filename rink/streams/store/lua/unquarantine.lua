-- An operator, or an owner with on_data_loss="continue", accepts the data of Redis.
-- KEYS: at, the partition's. ARGV: processor, start; of an owner its token.
local found = redis.call('HMGET', KEYS[1], 'quarantined', 'fence')
local quarantined, fence, token = found[1], found[2], ARGV[3]
if token and fence and less(token, fence) then return {'stale', fence} end
if not token and not quarantined then return {'free'} end
local last, offset = last_id(KEYS[2]), redis.call('HGET', KEYS[3], ARGV[1])
if not offset then offset = ARGV[2] == 'latest' and last or '0-0'  -- Redis lost it, and perhaps all else
elseif before(last, offset) then offset = last end
move_offset(partition(2), ARGV[1], offset)
begin_anew(KEYS[1])
return {'ok', quarantined or '', offset}
