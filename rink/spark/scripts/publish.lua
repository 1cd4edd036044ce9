-- Moves some of a staged list into its partition; asked again, or too late, it does nothing twice.
-- KEYS: stream, offsets, lost, mark, list. ARGV: seq, how many come before this list, its length, the most to move
-- (0: look whether it is there), limit of the partition (0: none), loses.
-- Answers: ok, full, gone or late (a later batch is in); how many are in, of this and what came before.
local stream, mark, list = KEYS[1], KEYS[4], KEYS[5]
local seq, first, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local found = redis.call('HMGET', mark, 'seq', 'done')
if found[1] and less(seq, found[1]) then return {'late', first + count} end
local done = found[1] == seq and tonumber(found[2]) or 0
if done >= first + count then return {'ok', done} end
local left = first + count - math.max(done, first)
if redis.call('LLEN', list) ~= left then return {'gone', done} end
if ARGV[4] == '0' then return {'ok', done} end
if done < first then return redis.error_reply('ERR staged lists are published in their order') end

local wanted, limit = math.min(left, tonumber(ARGV[4])), tonumber(ARGV[5])
if limit > 0 then
  wanted = math.min(wanted, limit)
  wanted = math.min(wanted, room(stream, KEYS[2], KEYS[3], limit, ARGV[6] == '1', wanted, '', ''))
  if wanted <= 0 then return {'full', done} end
end
for _, record in ipairs(redis.call('LPOP', list, wanted)) do redis.call('XADD', stream, '*', 'd', record) end
redis.call('HSET', mark, 'seq', seq, 'done', done + wanted)
return {'ok', done + wanted}
