-- Keep a staged list for long, since the batch may be decided. KEYS: list. ARGV: seconds. Returns
-- its length.
redis.call('EXPIRE', KEYS[1], ARGV[1])
return redis.call('LLEN', KEYS[1])
