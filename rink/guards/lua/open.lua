-- Raise the fence of parts. KEYS: the hash of each part. Arguments: token.
local token = args.token
for _, at in ipairs(KEYS) do
  check_format(at)
  local fence = redis.call('HGET', at, 'fence')
  if fence and less(token, fence) then return {'stale', fence} end
  if fence ~= token then put(at, 'fence', token) end
end
return {'ok'}
