-- Raise the fence of a sink before a query writes. An existing state keeps its expiry, since it
-- must not outlive the marks beside the data.
-- KEYS: sink. Arguments: token, kept_s (seconds that the state is kept; 0: forever).
check_format(KEYS[1])
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence and less(args.token, fence) then return {'stale', fence} end
put(KEYS[1], 'fence', args.token)
if args.kept_s > 0 then redis.call('EXPIRE', KEYS[1], args.kept_s, 'NX') end
return {'ok'}
