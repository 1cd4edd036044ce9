-- An operator moves an offset. KEYS: at, offsets, stream. ARGV: processor, to (earliest, latest or an id).
local to, was = ARGV[2], redis.call('HGET', KEYS[2], ARGV[1])
if not was then return {'unknown'} end
if to == 'earliest' then to = '0-0' elseif to == 'latest' then to = last_id(KEYS[3]) end
redis.call('HSET', KEYS[2], ARGV[1], to)
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
redis.call('HSET', KEYS[1], 'anchored', '0')
redis.call('HDEL', KEYS[1], 'parked', 'suspect', 'careful')
return {'ok', was, to}
