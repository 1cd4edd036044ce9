-- Moves an offset, for an operator.
-- KEYS: at, the partition's 5. ARGV: processor, to (earliest, latest or an id).
local to, was = ARGV[2], redis.call('HGET', KEYS[3], ARGV[1])
if not was then return {'unknown'} end
if to == 'earliest' then to = '0-0' elseif to == 'latest' then to = last_id(KEYS[2]) end
move_offset(partition(2), ARGV[1], to)
begin_anew(KEYS[1])
return {'ok', was, to}
