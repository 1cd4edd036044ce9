-- Forgets a processor, so that trimming no longer waits for it.
-- KEYS: at, the partition's 5. Arguments: processor, force (forget it even while it has an owner).
local open, quarantined = fields_of(KEYS[1], 'open', 'quarantined')
if (open == '1' or quarantined) and not args.force then return {'open'} end
local was = redis.call('HDEL', KEYS[3], args.processor)
redis.call('HDEL', KEYS[4], args.processor)
redis.call('HDEL', KEYS[5], 'replay:' .. args.processor)
redis.call('DEL', KEYS[1])
return {'ok', was}
