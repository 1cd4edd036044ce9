-- Quarantines a partition: it is not processed until it is unquarantined.
-- KEYS: at. Arguments: token, epoch, reason.
local refused = dismissal(KEYS[1], args.token, args.epoch)
if refused then return refused end
put(KEYS[1], 'fence', args.token, 'open', '0', 'quarantined', args.reason)
redis.call('HDEL', KEYS[1], 'suspect')
return {'ok'}
