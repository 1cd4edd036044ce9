-- Forgets a processor, so that trimming no longer waits for it.
-- KEYS: at, the partition's 5. Arguments: processor, force (forget it even while it has an owner).
local found = redis.call('HMGET', KEYS[1], 'open', 'quarantined')
if (found[1] == '1' or found[2]) and not args.force then return {'open'} end
local was = redis.call('HDEL', KEYS[3], args.processor)
redis.call('HDEL', KEYS[4], args.processor)
redis.call('HDEL', KEYS[5], 'replay:' .. args.processor)
redis.call('DEL', KEYS[1])
return {'ok', was}
