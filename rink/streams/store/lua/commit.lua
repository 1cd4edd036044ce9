-- Advances an offset and writes the outputs: both or neither.
-- KEYS: at, the partition's 5, then 5 for each target.
-- Arguments: processor, token, epoch, expected and new (the offset before and after), processed
--   (how many events), now_us. These are left out if there are none: ceiling, dead (how many
--   events), loses, targets (the bounds of each; limit 0: a stream of dead letters), outputs (the
--   number of each output's target, and how many strings it has).
-- ARGV[2] and on: the strings of the outputs.
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
local processor, new = args.processor, args.new
local refused, ceiling =
  objection(at, offsets, processor, args.token, args.epoch, args.expected, new)
if refused then return refused end
if not args.loses and not has_entry(stream, new) then
  return {'back', args.token, args.expected, last_id(stream)}
end

local outputs, parts, counts = args.outputs or {}, {}, {}
for _, output in ipairs(outputs) do counts[output[1]] = (counts[output[1]] or 0) + 1 end
for target, bounds in ipairs(args.targets or {}) do
  local key = KEYS[2 + 5 * target]
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'stream' and kind ~= 'none' then return {'type', target, kind} end
  if bounds.limit > 0 then
    local part, wanted = partition(2 + 5 * target, bounds), counts[target]
    part.commit, part.wanted = key == stream and args, wanted
    local free = could_have(part, wanted, part.commit)
    if free < wanted then return {'full', target, part.limit - free} end
    parts[target] = part
  end
end
for _, part in pairs(parts) do room(part, part.wanted, part.commit) end
local first = 2
for _, output in ipairs(outputs) do
  local target, last = output[1], first + output[2] - 1
  if parts[target] then add(parts[target], '*', unpack(ARGV, first, last))
  else redis.call('XADD', KEYS[2 + 5 * target], '*', unpack(ARGV, first, last)) end
  first = last + 1
end
for _, part in pairs(parts) do save(part) end
redis.call('HSET', offsets, processor, new)
local to = args.ceiling
if not (to and raise_ceiling(at, ceiling, to, 'anchored', '1', 'told', args.now_us)) then
  redis.call('HSET', at, 'anchored', '1', 'told', args.now_us)
end
if args.processed > 0 then redis.call('HINCRBY', at, 'processed', args.processed) end
if args.dead then redis.call('HINCRBY', at, 'dead', args.dead) end
return {'ok'}
