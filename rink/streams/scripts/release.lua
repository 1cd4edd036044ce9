-- An operator takes what is there for the truth. KEYS: at, offsets, stream. ARGV: processor.
local parked, offset = redis.call('HGET', KEYS[1], 'parked'), redis.call('HGET', KEYS[2], ARGV[1])
if not parked then return {'free'} end
local last = last_id(KEYS[3])
if not offset or before(last, offset) then offset = last end
redis.call('HSET', KEYS[2], ARGV[1], offset)
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'anchored', '0')
redis.call('HDEL', KEYS[1], 'parked', 'suspect', 'careful')
return {'ok', parked, offset}
