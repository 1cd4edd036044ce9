-- A query begins to write: lower tokens are refused from here on. KEYS: sink. ARGV: token, seconds
-- that its state is kept (0: for ever). A state that is there keeps its end: it is not to outlive
-- the marks beside the data.
check_format(KEYS[1])
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence and less(ARGV[1], fence) then return {'stale', fence} end
put(KEYS[1], 'fence', ARGV[1])
if ARGV[2] ~= '0' then redis.call('EXPIRE', KEYS[1], ARGV[2], 'NX') end
return {'ok'}
