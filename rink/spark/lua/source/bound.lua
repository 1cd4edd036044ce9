-- Return how far so many entries reach, or the first of them that hold so many bytes. Lua holds
-- them all in memory meanwhile. KEYS: stream. Arguments: after and end_at (ids), max_count,
-- max_bytes.
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
