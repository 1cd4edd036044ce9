-- An operator moves an offset. KEYS: at, offsets, stream. ARGV: processor, to (earliest, latest or an id).
local to, was = ARGV[2], redis.call('HGET', KEYS[2], ARGV[1])
if not was then return {'unknown'} end
if to == 'earliest' then to = '0-0' elseif to == 'latest' then to = last_id(KEYS[3]) end
redis.call('HSET', KEYS[2], ARGV[1], to)
begin_anew(KEYS[1])
return {'ok', was, to}
