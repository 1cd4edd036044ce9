-- Raise the fence of a sink before a query writes. KEYS: sink. ARGV: token, seconds that the state
-- is kept (0: forever). An existing state keeps its expiry, since it must not outlive the marks
-- beside the data.
check_format(KEYS[1])
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence and less(ARGV[1], fence) then return {'stale', fence} end
put(KEYS[1], 'fence', ARGV[1])
if ARGV[2] ~= '0' then redis.call('EXPIRE', KEYS[1], ARGV[2], 'NX') end
return {'ok'}
