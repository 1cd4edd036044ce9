-- Record that all of a batch is published. KEYS: sink. ARGV: seq.
if redis.call('HGET', KEYS[1], 'seq') == ARGV[1] then redis.call('HDEL', KEYS[1], 'manifest') end
return {'ok'}
