-- Nobody processes this partition until it is released. KEYS: at. ARGV: token, epoch, reason.
local refused = dismissal(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'open', '0', 'parked', ARGV[3])
redis.call('HDEL', KEYS[1], 'suspect')
return {'ok'}
