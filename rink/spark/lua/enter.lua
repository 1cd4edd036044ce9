-- Begin a reader: it gets a number greater than those of all earlier readers, which end. KEYS: at
-- of partition 0. ARGV: token, who, by (the reader's id).
check_format(KEYS[1])
local fence = redis.call('HGET', KEYS[1], 'fence')
if fence and less(ARGV[1], fence) then return {'stale', fence} end
local run = later_than(redis.call('HGET', KEYS[1], 'run'))
put(KEYS[1], 'fence', ARGV[1], 'run', run, 'who', ARGV[2], 'by', ARGV[3])
return {'ok', run}
