-- Marks the event that is about to be processed alone; '' marks none. If this owner crashes, the
-- event is the suspect.
-- KEYS: at. Arguments: token, epoch, entry_id, now_us.
local refused = dismissal(KEYS[1], args.token, args.epoch)
if refused then return refused end
local marked = redis.call('HGET', KEYS[1], 'marked')
-- A mark that arrives after a later mark or take would name an event that is done.
if marked and less(args.now_us, marked) then return {'ok'} end
put(KEYS[1], 'marked', args.now_us)
if args.entry_id == '' then redis.call('HDEL', KEYS[1], 'suspect')
else redis.call('HSET', KEYS[1], 'suspect', args.entry_id, 'told', args.now_us) end
return {'ok'}
