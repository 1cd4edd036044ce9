-- Advances an offset, outputs along with it: all of it, or nothing.
-- KEYS: at, offsets, stream, then for each target its stream, offsets and lost.
-- ARGV: processor, token, epoch, expected, new, ceiling ('': as it was), processed, dead, loses, number of outputs,
-- now, then for each target its limit (0: none) and loses, then each output as target's number, number of strings,
-- field, value, ...
local at, offsets, stream = KEYS[1], KEYS[2], KEYS[3]
local processor, new = ARGV[1], ARGV[5]
local refused = objection(at, offsets, processor, ARGV[2], ARGV[3], ARGV[4], new)
if refused then return refused end
if ARGV[9] ~= '1' and not has_entry(stream, new) then
  return {'back', ARGV[2], ARGV[4], last_id(stream)}
end

local targets = (#KEYS - 3) / 3
local outputs, more, next = {}, {}, 12 + 2 * targets
for i = 1, tonumber(ARGV[10]) do
  local target, count = tonumber(ARGV[next]), tonumber(ARGV[next + 1])
  outputs[i] = {KEYS[1 + 3 * target], next + 2, next + 1 + count}
  more[target] = (more[target] or 0) + 1
  next = next + 2 + count
end
local rooms = {}
for target = 1, targets do  -- nothing is written, nor removed, before all of it is known to be possible
  local key = KEYS[1 + 3 * target]
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'stream' and kind ~= 'none' then return {'type', target, kind} end
  local limit, wanted = tonumber(ARGV[10 + 2 * target]), more[target] or 0
  if limit > 0 then
    local loses = ARGV[11 + 2 * target] == '1'
    local mine = key == stream and processor or ''
    local asked = {key, KEYS[2 + 3 * target], KEYS[3 + 3 * target], limit, loses, wanted, mine, new}
    local free = could_have(unpack(asked))
    if free < wanted then return {'full', target, limit - free} end
    rooms[#rooms + 1] = asked
  end
end
for _, asked in ipairs(rooms) do room(unpack(asked)) end
for _, output in ipairs(outputs) do
  redis.call('XADD', output[1], '*', unpack(ARGV, output[2], output[3]))
end
redis.call('HSET', offsets, processor, new)
redis.call('HSET', at, 'anchored', '1', 'told', ARGV[11])
if ARGV[6] ~= '' then raise_ceiling(at, ARGV[6]) end
if ARGV[7] ~= '0' then redis.call('HINCRBY', at, 'processed', ARGV[7]) end
if ARGV[8] ~= '0' then redis.call('HINCRBY', at, 'dead', ARGV[8]) end
return {'ok'}
