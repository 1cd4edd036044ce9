-- How many events lie behind an offset. KEYS: offsets, stream. ARGV: processor, the most to count.
local from, most = redis.call('HGET', KEYS[1], ARGV[1]) or '0-0', tonumber(ARGV[2])
local count = 0
repeat
  local page = redis.call('XRANGE', KEYS[2], '(' .. from, '+', 'COUNT', math.min(1000, most - count))
  count = count + #page
  if #page > 0 then from = page[#page][1] end
until #page < 1000 or count >= most
return count
