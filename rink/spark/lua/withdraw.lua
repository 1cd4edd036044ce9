-- A query whose start has failed is no group any more. KEYS: at, the partition's. ARGV: group, by
-- (the reader's own id), run ('': it has none). Where another reader has begun, entered or read
-- since, or anything was committed, the group stays; so does a fence. Answers ok, also where there
-- is nothing to undo (any more); or other.
local found = redis.call('HMGET', KEYS[1], 'advanced', 'by', 'followed', 'from', 'fence')
if found[1] == '1' or found[2] and found[2] ~= ARGV[2] or found[3] and found[3] ~= ARGV[3] then return {'other'} end
if not found[4] then return {'ok'} end
if (found[5] or '0') == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], 'from', 'removed', 'anchored', 'advanced', 'epoch', 'followed', 'by')
end
redis.call('HDEL', KEYS[5], 'replay:' .. ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return {'ok'}
