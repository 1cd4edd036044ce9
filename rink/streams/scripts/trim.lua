-- Removes what every processor has passed and nobody has said is to be kept. KEYS: the partition's.
return trim(partition(1), '', '')
