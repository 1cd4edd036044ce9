-- Returns a snapshot of a processor in one partition.
-- KEYS: at, stream, offsets; to count events, also the rest of the partition's 5.
-- Arguments, to count events: processor, max_counted (if Redis has lost the counters).
local at, stream, offsets = KEYS[1], KEYS[2], KEYS[3]
if #KEYS == 3 then return {redis.call('HGETALL', at), all_offsets(offsets)} end
local part, processor, most = partition(2), args.processor, args.max_counted
local from, count = redis.call('HGET', offsets, processor) or '0-0', 0
local next_one = redis.call('XRANGE', stream, '(' .. from, '+', 'COUNT', 1)[1]
local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
local length = redis.call('XLEN', stream)
local start = part.is_known and first and start_of(part, first[1])
if start then
  count = math.min(part.added - passed(part, from), length)
else
  -- Redis has lost the counters or the segments, or another program has added the events.
  local at_id = from
  while count < most do
    local wanted = math.min(1000, most - count)
    local page = redis.call('XRANGE', stream, '(' .. at_id, '+', 'COUNT', wanted)
    count = count + #page
    if #page < 1000 then break end
    at_id = page[#page][1]
  end
end
local held = part.is_known and part.is_kept and unprocessed(part, -1, nil, true) or length
return {
  redis.call('HGETALL', at), all_offsets(offsets), count, next_one and next_one[1] or '', length,
  redis.call('HGET', part.lost, processor) or '0', start and whole(part.bytes - start.b) or '0',
  first and first[1] or '', whole(part.keep), whole(part.keep_bytes), held,
  math.max(part.added - length, 0),
}
