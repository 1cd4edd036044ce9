-- Raise the fence of parts. KEYS: the hash of each part. ARGV: token.
for _, at in ipairs(KEYS) do
  check_format(at)
  local fence = redis.call('HGET', at, 'fence')
  if fence and less(ARGV[1], fence) then return {'stale', fence} end
  if fence ~= ARGV[1] then put(at, 'fence', ARGV[1]) end
end
return {'ok'}
