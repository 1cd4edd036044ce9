-- Marks a clean shutdown of the owner with this token.
-- KEYS: at. Arguments: token.
if redis.call('HGET', KEYS[1], 'fence') ~= args.token then return {'stale'} end
redis.call('HSET', KEYS[1], 'open', '0')
redis.call('HDEL', KEYS[1], 'suspect')
return {'ok'}
