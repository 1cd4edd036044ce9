-- Trims events that every processor has passed and that are not to be kept. KEYS: the partition's.
return trim(partition(1), '', '')
