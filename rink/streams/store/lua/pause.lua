-- Pauses a processor in a partition, or resumes it, for an operator. The owner stays the owner.
-- KEYS: at. ARGV: 1 to pause, 0 to resume.
check_format(KEYS[1])
local was = redis.call('HGET', KEYS[1], 'paused') or '0'
if was == ARGV[1] then return {'same'} end
put(KEYS[1], 'paused', ARGV[1])
return {'ok'}
