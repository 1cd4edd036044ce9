-- Keep a staged list for long, since the batch may be decided. Returns its length.
-- KEYS: list. Arguments: kept_s (seconds).
redis.call('EXPIRE', KEYS[1], args.kept_s)
return redis.call('LLEN', KEYS[1])
