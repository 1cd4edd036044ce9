-- Commit up to an id, which Spark has committed. KEYS: at, the partition's. Arguments: group, token,
-- run, to (the id), bounds.
local found = redis.call('HMGET', KEYS[1], 'fence', 'run')
if found[1] and less(args.token, found[1]) then return {'stale', found[1]} end
local offset = redis.call('HGET', KEYS[3], args.group)
if found[2] ~= args.run or not offset then return {'other'} end  -- the next plan reports it
if before(offset, args.to) then
  redis.call('HSET', KEYS[3], args.group, args.to)
  redis.call('HSET', KEYS[1], 'advanced', '1')
  trim_passed(partition(2, args.bounds))
end
return {'ok'}
