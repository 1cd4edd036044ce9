-- Begin a reader: it gets a number greater than those of all earlier readers, which end. KEYS: at
-- of partition 0. Arguments: token, who, by (the reader's id).
check_format(KEYS[1])
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence and less(args.token, fence) then return {'stale', fence} end
local run = later_than(redis.call('HGET', KEYS[1], 'run'))
put(KEYS[1], 'fence', args.token, 'run', run, 'who', args.who, 'by', args.by)
return {'ok', run}
