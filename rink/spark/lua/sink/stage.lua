-- Append records to a staged list. A repeated call adds nothing.
-- KEYS: list. Arguments: count (how many records are in it), kept_s (seconds that it is kept).
-- ARGV[2] and on: the records.
local length = redis.call('LLEN', KEYS[1])
if length == args.count + #ARGV - 1 then return {'ok'} end
if length ~= args.count then return {'gone', length} end
for i = 2, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
redis.call('EXPIRE', KEYS[1], args.kept_s)
return {'ok'}
