-- Where a batch read begins and ends in a partition. KEYS: stream. ARGV: two of earliest, latest, or an id.
-- Answers ok, or gone: events behind the first may be; then both entries, and how many were ever removed.
local from = entry_at(KEYS[1], ARGV[1])
local gone = may_lack(KEYS[1], ARGV[1], from)
return {gone and 'gone' or 'ok', from, entry_at(KEYS[1], ARGV[2]), removed(KEYS[1])}
