-- Events up to this id are about to be yielded. After a crash, any of them may have been begun.
-- KEYS: at. ARGV: token, epoch, ceiling, now.
local refused = dismissal(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
if raise_ceiling(KEYS[1], ARGV[3]) then redis.call('HSET', KEYS[1], 'told', ARGV[4]) end
return {'ok'}
