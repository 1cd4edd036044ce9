-- What may be decided on is kept for long. KEYS: list. ARGV: seconds. Returns its length.
redis.call('EXPIRE', KEYS[1], ARGV[1])
return redis.call('LLEN', KEYS[1])
