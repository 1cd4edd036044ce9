-- Events up to this id are about to be yielded: what an owner that dies may have begun with.
-- KEYS: at. ARGV: token, epoch, ceiling, now.
local refused = dismissal(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
local ceiling = redis.call('HGET', KEYS[1], 'ceiling')
if not ceiling or before(ceiling, ARGV[3]) then  -- one that was sent again may come late
  redis.call('HSET', KEYS[1], 'ceiling', ARGV[3], 'told', ARGV[4])
end
return {'ok'}
