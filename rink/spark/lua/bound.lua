-- Return how far so many entries reach, or the first of them that hold so many bytes. Lua holds
-- them all in memory meanwhile. KEYS: stream. ARGV: after this id, up to this id, most entries,
-- bytes.
local at, count, most, left = ARGV[1], 0, tonumber(ARGV[3]), tonumber(ARGV[4])
repeat
  local limit = math.min(most - count, 100)
  local found = redis.call('XRANGE', KEYS[1], '(' .. at, ARGV[2], 'COUNT', limit)
  for _, entry in ipairs(found) do
    for _, text in ipairs(entry[2]) do left = left - #text end
    at = entry[1]
  end
  count = count + #found
until #found < 100 or count >= most or left <= 0
return {count, at}
