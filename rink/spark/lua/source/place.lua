-- Find where a batch read begins and ends in a partition. KEYS: stream. Arguments: start, end_at:
-- earliest, latest, an id, or '(id' for what lies before it. Answers ok, both entries, how many
-- entries were ever removed, and the answer of `gone` if events of the range may be gone.
local from = entry_at(KEYS[1], args.start)
local why = lack_of(KEYS[1], args.start, from, args.end_at)
local lack = why ~= '' and gone(why, KEYS[1]) or {}
return {'ok', from, entry_at(KEYS[1], args.end_at), removed(KEYS[1]), lack}
