-- Raises the ceiling, before events up to it are yielded. After a crash of this owner, any event up
-- to the ceiling may have been begun, so the next owner runs those one by one.
-- KEYS: at. Arguments: token, epoch, ceiling, now_us.
local refused = dismissal(KEYS[1], args.token, args.epoch)
if refused then return refused end
if raise_ceiling(KEYS[1], args.ceiling) then redis.call('HSET', KEYS[1], 'told', args.now_us) end
return {'ok'}
