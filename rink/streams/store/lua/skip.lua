-- Skips the next event of a quarantined partition, for an operator. It becomes a dead letter.
-- KEYS: at, the partition's 5, dead.
-- Arguments: processor, entry_id (of that event), error (of the dead letter), is_trimmed (false: the
--   event is a dead letter already, and stays).
local at, stream, offsets, processor = KEYS[1], KEYS[2], KEYS[3], args.processor
local quarantined = redis.call('HGET', at, 'quarantined')
local offset = redis.call('HGET', offsets, processor)
if not quarantined or not offset then return {'free'} end
local found, from = nil, offset
repeat
  -- Pages are short, since events may be large.
  local page = redis.call('XRANGE', stream, '(' .. from, '+', 'COUNT', 10)
  for _, entry in ipairs(page) do
    from = entry[1]
    local fields = {}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    if not fields.only or fields.only == processor then
      found = {id = entry[1], data = fields.d or ''}
      break
    end
  end
until found or #page < 10
if not found then return {'none'} end
if found.id ~= args.entry_id then return {'other', found.id} end
if args.is_trimmed then
  redis.call(
    'XADD', KEYS[7], '*', 'd', found.data, 'id', found.id, 'error', args.error, 'trace', '',
    'attempts', '0'
  )
end
redis.call('HSET', offsets, processor, found.id)
redis.call('HINCRBY', at, 'dead', 1)
begin_anew(at)
return {'ok', quarantined, found.id}
