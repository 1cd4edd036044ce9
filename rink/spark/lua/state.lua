-- Return the last decision. KEYS: sink. Answers seq, manifest ('' if it is published).
check_format(KEYS[1])
local found = redis.call('HMGET', KEYS[1], 'seq', 'manifest')
return {found[1] or '0', found[2] or ''}
