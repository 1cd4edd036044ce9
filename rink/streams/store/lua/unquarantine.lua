-- Accepts the data of Redis, for an operator or for an owner with on_data_loss="continue".
-- KEYS: at, the partition's 5. Arguments: processor, start, and the token if an owner calls.
local found = redis.call('HMGET', KEYS[1], 'quarantined', 'fence')
local quarantined, fence, token = found[1], found[2], args.token
if token and fence and less(token, fence) then return {'stale', fence} end
if not token and not quarantined then return {'free'} end
local last, offset = last_id(KEYS[2]), redis.call('HGET', KEYS[3], args.processor)
-- Without an offset, Redis has lost it, and perhaps everything else.
if not offset then offset = args.start == 'latest' and last or '0-0'
elseif before(last, offset) then offset = last end
move_offset(partition(2), args.processor, offset)
begin_anew(KEYS[1])
return {'ok', quarantined or '', offset}
