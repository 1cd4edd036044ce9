-- Sets the retention that a starting worker declares.
-- KEYS: the partition's 5. Arguments: bounds.
local part = partition(1, args.bounds)
store_retention(part)
-- End the current segment, which may be too long for the new retention.
redis.call('HSET', part.kept, 'next_n', '0')
return {'ok'}
