-- Moves some of a staged list into its partition; asked again, or too late, it does nothing twice.
-- KEYS: stream, offsets, lost, mark, list. ARGV: seq, how many come before this list, its length, the most to move
-- (0: look whether it is there), limit of the partition (0: none), loses, bytes after which a step ends, seconds that
-- the mark is kept (0: for ever).
-- Answers: ok, full, gone or late (a later batch is in); how many are in, of this and what came before.
local stream, mark, list = KEYS[1], KEYS[4], KEYS[5]
local seq, first, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
check_format(mark)
local found = redis.call('HMGET', mark, 'seq', 'done')
if found[1] and less(seq, found[1]) then return {'late', first + count} end
local done = found[1] == seq and tonumber(found[2]) or 0
if done >= first + count then return {'ok', done} end
local left = first + count - math.max(done, first)
if redis.call('LLEN', list) ~= left then return {'gone', done} end
if ARGV[4] == '0' then return {'ok', done} end
if done < first then return redis.error_reply('ERR staged lists are published in their order') end

local wanted, limit, moved, size = math.min(left, tonumber(ARGV[4])), tonumber(ARGV[5]), 0, 0
local free = limit == 0 and wanted or 0
while moved < wanted and size < tonumber(ARGV[7]) do  -- one by one: how large they are shows only here
  if free == 0 then  -- for few: those that are dropped may be large, too
    free = room(stream, KEYS[2], KEYS[3], limit, ARGV[6] == '1', math.min(wanted - moved, 10), '', '')
    if free <= 0 then break end
  end
  local record = redis.call('LPOP', list)
  redis.call('XADD', stream, '*', 'd', record)
  moved, size, free = moved + 1, size + #record, free - 1
end
if moved == 0 then return {'full', done} end
put(mark, 'seq', seq, 'done', done + moved)
if ARGV[8] ~= '0' then redis.call('EXPIRE', mark, ARGV[8]) end
return {'ok', done + moved}
