-- How far so many entries reach, or the first of them that make so many bytes: Lua has them all in
-- memory meanwhile. KEYS: stream. ARGV: behind this id, up to this one, the most, bytes.
local at, count, most, left = ARGV[1], 0, tonumber(ARGV[3]), tonumber(ARGV[4])
repeat
  local found = redis.call('XRANGE', KEYS[1], '(' .. at, ARGV[2], 'COUNT', math.min(most - count, 100))
  for _, entry in ipairs(found) do
    for _, text in ipairs(entry[2]) do left = left - #text end
    at = entry[1]
  end
  count = count + #found
until #found < 100 or count >= most or left <= 0
return {count, at}
