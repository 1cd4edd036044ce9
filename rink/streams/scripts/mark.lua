-- This event is about to be processed alone. KEYS: at. ARGV: token, epoch, id.
local refused = dismissal(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
redis.call('HSET', KEYS[1], 'suspect', ARGV[3])
return {'ok'}
