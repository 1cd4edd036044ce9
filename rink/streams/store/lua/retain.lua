-- Sets the retention that a starting worker declares. KEYS: the partition's. ARGV: the partition's.
local part = partition(1, 1)
say(part)
redis.call('HSET', part.kept, 'next_n', '0')  -- a segment of before may be too long for it
return {'ok'}
