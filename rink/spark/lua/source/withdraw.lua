-- Remove the group of a query whose start has failed. The group stays if another reader has begun,
-- entered or read since, or if anything was committed. A fence stays, too. Answers ok, also if
-- there is nothing to remove; or other.
-- KEYS: at, the partition's. Arguments: group, by (the reader's id), run ('' if it has none).
local advanced, by, followed, from, fence =
  fields_of(KEYS[1], 'advanced', 'by', 'followed', 'from', 'fence')
local is_anothers = by and by ~= args.by or followed and followed ~= args.run
if advanced == '1' or is_anothers then return {'other'} end
if not from then return {'ok'} end
if (fence or '0') == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], 'from', 'removed', 'anchored', 'advanced', 'epoch', 'followed', 'by')
end
redis.call('HDEL', KEYS[5], 'replay:' .. args.group)
redis.call('HDEL', KEYS[3], args.group)
return {'ok'}
