-- Registers a processor in a partition, and returns its offset.
-- KEYS: at, the partition's 5. Arguments: processor, start.
return register(KEYS[1], partition(2), args.processor, args.start)
