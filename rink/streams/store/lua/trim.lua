-- Trims events that every processor has passed and that are not to be kept.
-- KEYS: the partition's 5. Arguments: bounds.
local part = partition(1, args.bounds)
-- Store the declared retention again if Redis has lost it.
if part.declared and not part.has_retention then store_retention(part) end
return trim(part, '', '')
