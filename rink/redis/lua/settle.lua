-- Settles the partition count and hasher, on which all programs of a stream must agree. The first
-- program writes both at once, and later ones change nothing.
-- KEYS: about. Arguments: partitions, hasher (its fingerprint; '': the built-in one).
check_format(KEYS[1])
if redis.call('HEXISTS', KEYS[1], 'partitions') == 1 then return end
put(KEYS[1], 'partitions', args.partitions)
if args.hasher ~= '' then redis.call('HSET', KEYS[1], 'hasher', args.hasher) end
