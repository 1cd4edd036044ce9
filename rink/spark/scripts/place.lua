-- Where a batch read begins or ends in a partition. KEYS: stream. ARGV: earliest, latest, or an id.
return {entry_at(KEYS[1], ARGV[1]), removed(KEYS[1])}
