-- Quarantines a partition: it is not processed until it is unquarantined.
-- KEYS: at. ARGV: token, epoch, reason.
local refused = dismissal(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
put(KEYS[1], 'fence', ARGV[1], 'open', '0', 'quarantined', ARGV[3])
redis.call('HDEL', KEYS[1], 'suspect')
return {'ok'}
