-- Registers a processor in a partition, and returns its offset.
-- KEYS: at, the partition's 5. ARGV: processor, start.
return register(KEYS[1], partition(2), ARGV[1], ARGV[2])
