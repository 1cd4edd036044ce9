-- Trimming waits for this processor no longer. KEYS: at, the partition's. ARGV: processor, force.
local found = redis.call('HMGET', KEYS[1], 'open', 'quarantined')
if (found[1] == '1' or found[2]) and ARGV[2] ~= '1' then return {'open'} end
local was = redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('HDEL', KEYS[5], 'replay:' .. ARGV[1])
redis.call('DEL', KEYS[1])
return {'ok', was}
