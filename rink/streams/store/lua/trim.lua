-- Trims events that every processor has passed and that are not to be kept.
-- KEYS: the partition's 5. ARGV: the partition's 4.
local part = partition(1, 1)
-- Store the declared retention again if Redis has lost it.
if part.says and not part.has_retention then store_retention(part) end
return trim(part, '', '')
