-- Forgets a processor, so that trimming no longer waits for it.
-- KEYS: at, the partition's 5. ARGV: processor, 1 to forget it even while it has an owner.
local found = redis.call('HMGET', KEYS[1], 'open', 'quarantined')
if (found[1] == '1' or found[2]) and ARGV[2] ~= '1' then return {'open'} end
local was = redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('HDEL', KEYS[5], 'replay:' .. ARGV[1])
redis.call('DEL', KEYS[1])
return {'ok', was}
