-- Advances an offset, outputs along with it: all of it, or nothing.
-- KEYS: at, the partition's, then those of each target. ARGV: processor, token, epoch, expected, new, ceiling ('': as it
-- was), processed, dead, loses, number of outputs, now, then for each target what `partition` takes (limit 0: a stream of
-- dead letters), then each output as target's number, number of strings, field, value, ...
local at, stream, offsets = KEYS[1], KEYS[2], KEYS[3]
local processor, new = ARGV[1], ARGV[5]
local refused = objection(at, offsets, processor, ARGV[2], ARGV[3], ARGV[4], new)
if refused then return refused end
if ARGV[9] ~= '1' and not has_entry(stream, new) then
  return {'back', ARGV[2], ARGV[4], last_id(stream)}
end

local targets = (#KEYS - 6) / 5
local outputs, more, next = {}, {}, 12 + 4 * targets
for i = 1, tonumber(ARGV[10]) do
  local target, count = tonumber(ARGV[next]), tonumber(ARGV[next + 1])
  outputs[i] = {target, next + 2, next + 1 + count}
  more[target] = (more[target] or 0) + 1
  next = next + 2 + count
end
local parts = {}
for target = 1, targets do  -- nothing is written, nor removed, before all of it is known to be possible
  local key = KEYS[2 + 5 * target]
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'stream' and kind ~= 'none' then return {'type', target, kind} end
  if ARGV[8 + 4 * target] ~= '0' then
    local part, wanted = partition(2 + 5 * target, 8 + 4 * target), more[target] or 0
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
