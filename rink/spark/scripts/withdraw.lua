-- A query whose start has failed is no group any more. KEYS: at, the partition's. ARGV: group, run ('': it has none).
-- Where somebody else has read since, or anything was committed, it stays; so does a fence. Answers how many groups went.
local found = redis.call('HMGET', KEYS[1], 'advanced', 'run', 'followed', 'from', 'fence')
local run = found[3] or found[2]
if not found[4] or found[1] == '1' or run and run ~= ARGV[2] then return 0 end
if (found[5] or '0') == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], 'from', 'removed', 'anchored', 'advanced', 'epoch', 'followed')
end
redis.call('HDEL', KEYS[5], 'replay:' .. ARGV[1])
return redis.call('HDEL', KEYS[3], ARGV[1])
