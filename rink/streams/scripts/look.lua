-- What Redis holds of a processor in one partition, at one moment.
-- KEYS: at, offsets, stream, lost. ARGV: processor, the most events behind its offset to count.
local at, offsets, stream, lost = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local processor, most = ARGV[1], tonumber(ARGV[2])
local from, count = redis.call('HGET', offsets, processor) or '0-0', 0
local next = redis.call('XRANGE', stream, '(' .. from, '+', 'COUNT', 1)
while count < most do
  local page = redis.call('XRANGE', stream, '(' .. from, '+', 'COUNT', math.min(1000, most - count))
  count = count + #page
  if #page < 1000 then break end
  from = page[#page][1]
end
return {
  redis.call('HGETALL', at), redis.call('HGETALL', offsets), count, #next > 0 and next[1][1] or '',
  redis.call('XLEN', stream), redis.call('HGET', lost, processor) or '0',
}
