-- An operator has a quarantined partition pass over its next event, which becomes a dead letter.
-- KEYS: at, the partition's, dead. ARGV: processor, id that it must be or '', what the letter says, whether one is
-- written (0: the event is a dead letter already, and stays).
local at, stream, offsets, processor = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local quarantined, offset = redis.call('HGET', at, 'quarantined'), redis.call('HGET', offsets, processor)
if not quarantined or not offset then return {'free'} end
local found, from = nil, offset
repeat
  local page = redis.call('XRANGE', stream, '(' .. from, '+', 'COUNT', 10)  -- they may be large
  for _, entry in ipairs(page) do
    from = entry[1]
    local fields = {}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    if not fields.only or fields.only == processor then found = {entry[1], fields.d or ''} break end
  end
until found or #page < 10
if not found then return {'none'} end
if ARGV[2] ~= '' and found[1] ~= ARGV[2] then return {'other', found[1]} end
if ARGV[4] == '1' then
  redis.call('XADD', KEYS[7], '*', 'd', found[2], 'id', found[1], 'error', ARGV[3], 'trace', '', 'attempts', '0')
end
redis.call('HSET', offsets, processor, found[1])
redis.call('HINCRBY', at, 'dead', 1)
begin_anew(at)
return {'ok', quarantined, found[1]}
