-- What Redis holds of a processor in one partition, at one moment.
-- KEYS: at, offsets, then stream and lost where events are to be counted too. ARGV: processor, the most to count.
local at, offsets, stream, lost = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if not stream then return {redis.call('HGETALL', at), all_offsets(offsets)} end
local processor, most = ARGV[1], tonumber(ARGV[2])
local from, count = redis.call('HGET', offsets, processor) or '0-0', 0
local first = redis.call('XRANGE', stream, '(' .. from, '+', 'COUNT', 1)
while count < most do
  local page = redis.call('XRANGE', stream, '(' .. from, '+', 'COUNT', math.min(1000, most - count))
  count = count + #page
  if #page < 1000 then break end
  from = page[#page][1]
end
return {
  redis.call('HGETALL', at), all_offsets(offsets), count, #first > 0 and first[1][1] or '',
  redis.call('XLEN', stream), redis.call('HGET', lost, processor) or '0',
}
