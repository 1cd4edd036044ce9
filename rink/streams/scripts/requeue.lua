-- A dead letter becomes an event again, for its processor alone.
-- KEYS: dead, stream, offsets, lost. ARGV: processor, id of the letter, limit, loses.
if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0 then return {'unknown'} end
local found = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])
if #found == 0 then return {'gone'} end
local data
for i = 1, #found[1][2], 2 do
  if found[1][2][i] == 'd' then data = found[1][2][i + 1] end
end
if room(KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[3]), ARGV[4] == '1', 1, '', '') < 1 then return {'full'} end
local id = redis.call('XADD', KEYS[2], '*', 'd', data or '', 'only', ARGV[1])
redis.call('XDEL', KEYS[1], ARGV[2])
return {'ok', id}
