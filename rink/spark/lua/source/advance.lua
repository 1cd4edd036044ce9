-- Commit up to an id, which Spark has committed.
-- KEYS: at, the partition's. Arguments: group, token, run, to (the id), bounds.
local fence, run = fields_of(KEYS[1], 'fence', 'run')
if fence and less(args.token, fence) then return {'stale', fence} end
local offset = redis.call('HGET', KEYS[3], args.group)
if run ~= args.run or not offset then return {'other'} end  -- the next plan reports it
if before(offset, args.to) then
  redis.call('HSET', KEYS[3], args.group, args.to)
  redis.call('HSET', KEYS[1], 'advanced', '1')
  trim_passed(partition(2, args.bounds))
end
return {'ok'}
