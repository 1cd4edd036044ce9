-- Trimming waits for this processor no longer. KEYS: at, offsets, lost. ARGV: processor, force.
local open = redis.call('HGET', KEYS[1], 'open')
if open and open ~= '0' and ARGV[2] ~= '1' then return {'open'} end
local was = redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('DEL', KEYS[1])
return {'ok', was}
