-- Turns a dead letter into an event again, only for the processor that gave it up.
-- KEYS: dead, the partition's 5. Arguments: processor, letter (its id), bounds.
local part = partition(2, args.bounds)
if redis.call('HEXISTS', part.offsets, args.processor) == 0 then return {'unknown'} end
local found = redis.call('XRANGE', KEYS[1], args.letter, args.letter)
if #found == 0 then return {'gone'} end
local data
for i = 1, #found[1][2], 2 do
  if found[1][2][i] == 'd' then data = found[1][2][i + 1] end
end
if room(part, 1, '', '') < 1 then return {'full'} end
local id = add(part, '*', 'd', data or '', 'only', args.processor)
save(part)
redis.call('XDEL', KEYS[1], args.letter)
return {'ok', id}
