-- KEYS: at, offsets, stream. ARGV: processor, start.
return register(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2])
