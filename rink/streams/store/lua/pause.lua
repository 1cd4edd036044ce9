-- Pauses a processor in a partition, or resumes it, for an operator. The owner stays the owner.
-- KEYS: at. Arguments: paused.
check_format(KEYS[1])
local was, paused = redis.call('HGET', KEYS[1], 'paused') or '0', args.paused and '1' or '0'
if was == paused then return {'same'} end
put(KEYS[1], 'paused', paused)
return {'ok'}
