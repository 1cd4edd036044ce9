-- Return how many entries a batch takes, and the id of the last: up to max_count entries, or fewer
-- if they reach max_bytes. The script may hold them all in memory.
-- KEYS: stream. Arguments: after and end_at (ids), max_count, max_bytes.
local at, count, most, left = args.after, 0, args.max_count, args.max_bytes
repeat
  local limit = math.min(most - count, 100)
  local page = redis.call('XRANGE', KEYS[1], '(' .. at, args.end_at, 'COUNT', limit)
  for _, entry in ipairs(page) do
    for _, text in ipairs(entry[2]) do left = left - #text end
    at = entry[1]
  end
  count = count + #page
until #page < 100 or count >= most or left <= 0
return {count, at}
