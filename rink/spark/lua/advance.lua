-- Commit up to an id, which Spark has committed. KEYS: at, the partition's. ARGV: group, token,
-- run, id, the partition's.
local found = redis.call('HMGET', KEYS[1], 'fence', 'run')
if found[1] and less(ARGV[2], found[1]) then return {'stale', found[1]} end
local offset = redis.call('HGET', KEYS[3], ARGV[1])
if found[2] ~= ARGV[3] or not offset then return {'other'} end  -- the next plan reports it
if before(offset, ARGV[4]) then
  redis.call('HSET', KEYS[3], ARGV[1], ARGV[4])
  redis.call('HSET', KEYS[1], 'advanced', '1')
  trim_passed(partition(2, 5))
end
return {'ok'}
