-- Raises the ceiling, before events up to it are yielded. After a crash of this owner, any event up
-- to the ceiling may have been begun, so the next owner runs those one by one.
-- KEYS: at. ARGV: token, epoch, ceiling, now.
local refused = dismissal(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
if raise_ceiling(KEYS[1], ARGV[3]) then redis.call('HSET', KEYS[1], 'told', ARGV[4]) end
return {'ok'}
