-- Moves an offset, for an operator.
-- KEYS: at, the partition's 5. Arguments: processor, to (earliest, latest or an id).
local to, was = args.to, redis.call('HGET', KEYS[3], args.processor)
if not was then return {'unknown'} end
if to == 'earliest' then to = '0-0' elseif to == 'latest' then to = last_id(KEYS[2]) end
move_offset(partition(2), args.processor, to)
begin_anew(KEYS[1])
return {'ok', was, to}
