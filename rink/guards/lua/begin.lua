-- Raise the fence of a name, and store into how many parts a query is cut. KEYS: the name's hash.
-- Arguments: token; query and parts, both left out to only raise the fence.
local at, token, query, parts = KEYS[1], args.token, args.query, args.parts
check_format(at)
local fence = redis.call('HGET', at, 'fence')
if fence and less(token, fence) then return {'stale', fence} end
if query then
  local known = redis.call('HGET', at, 'parts:' .. query)
  if known and known ~= parts then return {'cut', known} end
  put(at, 'parts:' .. query, parts)
  local most = redis.call('HGET', at, 'most') or '0'
  if less(most, parts) then redis.call('HSET', at, 'most', parts) end
end
put(at, 'fence', token)
return {'ok', redis.call('HGET', at, 'most') or '0'}
