-- Append records to a staged list. A repeated call adds nothing. KEYS: list. ARGV: how many records
-- are in it, seconds that it is kept, records...
local length, before_it = redis.call('LLEN', KEYS[1]), tonumber(ARGV[1])
if length == before_it + #ARGV - 2 then return {'ok'} end
if length ~= before_it then return {'gone', length} end
for i = 3, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return {'ok'}
