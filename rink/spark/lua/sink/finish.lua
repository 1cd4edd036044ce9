-- Record that all of a batch is published. KEYS: sink. Arguments: seq.
if redis.call('HGET', KEYS[1], 'seq') == args.seq then redis.call('HDEL', KEYS[1], 'manifest') end
return {'ok'}
