-- Remove the group of a query whose start has failed. KEYS: at, the partition's. Arguments: group, by
-- (the reader's id), run ('' if it has none). The group stays if another reader has begun, entered
-- or read since, or if anything was committed. A fence stays, too. Answers ok, also if there is
-- nothing to remove; or other.
local found = redis.call('HMGET', KEYS[1], 'advanced', 'by', 'followed', 'from', 'fence')
local is_anothers = found[2] and found[2] ~= args.by or found[3] and found[3] ~= args.run
if found[1] == '1' or is_anothers then return {'other'} end
if not found[4] then return {'ok'} end
if (found[5] or '0') == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], 'from', 'removed', 'anchored', 'advanced', 'epoch', 'followed', 'by')
end
redis.call('HDEL', KEYS[5], 'replay:' .. args.group)
redis.call('HDEL', KEYS[3], args.group)
return {'ok'}
