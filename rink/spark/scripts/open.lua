-- A query begins to write: lower tokens are refused from here on. KEYS: sink. ARGV: token.
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence and less(ARGV[1], fence) then return {'stale', fence} end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return {'ok'}
