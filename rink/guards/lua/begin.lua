-- Raises the fence of a name and remembers into how many parts its queries are cut.
-- KEYS: the name's hash. ARGV: token; query and parts, both '' where only the fence is raised.
local at, token, query, parts = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
check_format(at)
local fence = redis.call('HGET', at, 'fence')
if fence and less(token, fence) then return {'stale', fence} end
if query ~= '' then
  local known = redis.call('HGET', at, 'parts:' .. query)
  if known and known ~= parts then return {'cut', known} end
  put(at, 'parts:' .. query, parts)
  if less(redis.call('HGET', at, 'most') or '0', parts) then redis.call('HSET', at, 'most', parts) end
end
put(at, 'fence', token)
return {'ok', redis.call('HGET', at, 'most') or '0'}
