-- Advances an offset and writes the outputs: both or neither.
-- KEYS: at, the partition's 5, then 5 for each target.
-- ARGV:
--   1 processor         2 token              3 epoch
--   4 expected offset   5 new offset         6 ceiling ('': leave it as it is)
--   7 processed events  8 dead events        9 loses (1: the partition drops its oldest events)
--   10 number of outputs                     11 now, in microseconds
--   12... for each target the partition's 4 (limit 0: a stream of dead letters)
--   then each output: number of its target, number of strings, field, value, ...
--
-- The invariant: a commit is written only by the owner, only from the offset that the owner knows,
-- and only once. `objection` holds it, and it comes first. The order of the other steps:
--   1. All checks come before the first write, since Redis undoes nothing of a failed script. So
--      `could_have` counts the room of every target without removing anything.
--   2. `room` then removes events, and `add` writes. Room that `could_have` counted is still there,
--      since no other step runs in between.
--   3. For the partition itself as a target, the processor's offset counts as `new` already: the
--      commit frees the events that it passes for its own outputs.
--   4. The offset is written last.
-- A commit checks that its event `new` is still in the stream. If not, Redis has lost data, since
-- the event at the lowest offset is never removed without `loses`.
local at, stream, offsets = KEYS[1], KEYS[2], KEYS[3]
local processor, new = ARGV[1], ARGV[5]
local refused = objection(at, offsets, processor, ARGV[2], ARGV[3], ARGV[4], new)
if refused then return refused end
if ARGV[9] ~= '1' and not has_entry(stream, new) then
  return {'back', ARGV[2], ARGV[4], last_id(stream)}
end

local targets = (#KEYS - 6) / 5
local outputs, counts, next = {}, {}, 12 + 4 * targets
for i = 1, tonumber(ARGV[10]) do
  local target, count = tonumber(ARGV[next]), tonumber(ARGV[next + 1])
  outputs[i] = {target, next + 2, next + 1 + count}
  counts[target] = (counts[target] or 0) + 1
  next = next + 2 + count
end
local parts = {}
for target = 1, targets do
  local key = KEYS[2 + 5 * target]
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'stream' and kind ~= 'none' then return {'type', target, kind} end
  if ARGV[8 + 4 * target] ~= '0' then
    local part, wanted = partition(2 + 5 * target, 8 + 4 * target), counts[target] or 0
    part.mine, part.wanted = key == stream and processor or '', wanted
    local free = could_have(part, wanted, part.mine, new)
    if free < wanted then return {'full', target, part.limit - free} end
    parts[target] = part
  end
end
for _, part in pairs(parts) do room(part, part.wanted, part.mine, new) end
for _, output in ipairs(outputs) do
  local target, first, last = unpack(output)
  if parts[target] then add(parts[target], '*', unpack(ARGV, first, last))
  else redis.call('XADD', KEYS[2 + 5 * target], '*', unpack(ARGV, first, last)) end
end
for _, part in pairs(parts) do save(part) end
redis.call('HSET', offsets, processor, new)
redis.call('HSET', at, 'anchored', '1', 'told', ARGV[11])
if ARGV[6] ~= '' then raise_ceiling(at, ARGV[6]) end
if ARGV[7] ~= '0' then redis.call('HINCRBY', at, 'processed', ARGV[7]) end
if ARGV[8] ~= '0' then redis.call('HINCRBY', at, 'dead', ARGV[8]) end
return {'ok'}
