-- Where a batch read begins and ends in a partition. KEYS: stream. ARGV: two of earliest, latest,
-- an id, or '(id' for what lies before it. Answers ok, both entries, how many were ever removed,
-- and where events of the range may be gone, what `gone` tells.
local from = entry_at(KEYS[1], ARGV[1])
local why = lack_of(KEYS[1], ARGV[1], from, ARGV[2])
return {'ok', from, entry_at(KEYS[1], ARGV[2]), removed(KEYS[1]), why ~= '' and gone(why, KEYS[1]) or {}}
