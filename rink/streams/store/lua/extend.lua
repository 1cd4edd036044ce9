-- Raises the ceiling, before events up to it are yielded. After a crash of this owner, any event up
-- to the ceiling may have been begun, so the next owner runs these events one by one.
-- KEYS: at. Arguments: token, epoch, ceiling, now_us.
local refused, ceiling = dismissal(KEYS[1], args.token, args.epoch)
if refused then return refused end
raise_ceiling(KEYS[1], ceiling, args.ceiling, 'told', args.now_us)
return {'ok'}
