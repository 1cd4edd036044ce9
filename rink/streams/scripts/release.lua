-- An operator takes what is there for the truth. KEYS: at, offsets, stream. ARGV: processor.
local parked, offset = redis.call('HGET', KEYS[1], 'parked'), redis.call('HGET', KEYS[2], ARGV[1])
if not parked then return {'free'} end
local last = last_id(KEYS[3])
if not offset then offset = '0-0'  -- whatever is there was sent since Redis lost it
elseif before(last, offset) then offset = last end
redis.call('HSET', KEYS[2], ARGV[1], offset)
begin_anew(KEYS[1])
return {'ok', parked, offset}
