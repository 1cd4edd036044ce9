-- A query begins to write: lower tokens are refused from here on. KEYS: sink. ARGV: token, query.
-- Answers what was decided and is not published yet: seq and manifest, or '' twice.
local found = redis.call('HMGET', KEYS[1], 'fence', 'seq', 'manifest')
if found[1] and less(ARGV[1], found[1]) then return {'stale', found[1]} end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
return {'ok', found[3] and found[2] or '', found[3] or ''}
