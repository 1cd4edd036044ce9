-- KEYS: at, the partition's. ARGV: processor, start.
return register(KEYS[1], partition(2), ARGV[1], ARGV[2])
