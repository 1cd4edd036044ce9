-- What is decided does not expire. KEYS: list. ARGV: seconds it is kept yet; 0: for good. Returns its length.
if ARGV[1] == '0' then redis.call('PERSIST', KEYS[1]) else redis.call('EXPIRE', KEYS[1], ARGV[1]) end
return redis.call('LLEN', KEYS[1])
