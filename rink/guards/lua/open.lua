-- Raise the fence of parts. KEYS: the hash of each part. Arguments: token.
for _, at in ipairs(KEYS) do
  check_format(at)
  local fence = redis.call('HGET', at, 'fence')
  if fence and less(args.token, fence) then return {'stale', fence} end
  if fence ~= args.token then put(at, 'fence', args.token) end
end
return {'ok'}
