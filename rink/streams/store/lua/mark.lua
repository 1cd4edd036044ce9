-- Marks the event that is about to be processed alone; '' marks none. If this owner crashes, the
-- event is the suspect.
-- KEYS: at. ARGV: token, epoch, id, now.
local refused = dismissal(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
local marked = redis.call('HGET', KEYS[1], 'marked')
-- A mark that arrives after a later mark or take would name an event that is done.
if marked and less(ARGV[4], marked) then return {'ok'} end
put(KEYS[1], 'marked', ARGV[4])
if ARGV[3] == '' then redis.call('HDEL', KEYS[1], 'suspect')
else redis.call('HSET', KEYS[1], 'suspect', ARGV[3], 'told', ARGV[4]) end
return {'ok'}
