-- An operator takes what is there for the truth. KEYS: at, offsets, stream. ARGV: processor, start.
local quarantined, offset = redis.call('HGET', KEYS[1], 'quarantined'), redis.call('HGET', KEYS[2], ARGV[1])
if not quarantined then return {'free'} end
local last = last_id(KEYS[3])
if not offset then offset = ARGV[2] == 'latest' and last or '0-0'  -- Redis lost it, and perhaps all else
elseif before(last, offset) then offset = last end
put(KEYS[2], ARGV[1], offset)
begin_anew(KEYS[1])
return {'ok', quarantined, offset}
