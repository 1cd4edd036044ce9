-- Move some records of a staged list into its partition.
--
-- KEYS: the partition's, mark, list.
-- Arguments: seq, first (how many records come before this list), count (its length), max_count
--   (the most to move; 0: only check that the list is complete), max_bytes (after which a step
--   ends), kept_s (seconds that the mark is kept; 0: forever), bounds.
-- Answers ok, full, gone or late (a later batch is in); then how many records are in, of this list
--   and those before it.
--
-- Invariant: each record is added once, in order. `done` counts the added records of this seq, and
-- changes in the same step as the list. So `done` and the list's length tell how far a step came,
-- and a repeated or late call adds nothing twice.
local mark, list = KEYS[6], KEYS[7]
local seq, first, count = args.seq, args.first, args.count
check_format(mark)
local last_seq, done = fields_of(mark, 'seq', 'done')
if last_seq and less(seq, last_seq) then return {'late', first + count} end
done = last_seq == seq and tonumber(done) or 0
if done >= first + count then return {'ok', done} end
local left = first + count - math.max(done, first)
if redis.call('LLEN', list) ~= left then return {'gone', done} end
if args.max_count == 0 then return {'ok', done} end
if done < first then return redis.error_reply('ERR staged lists are published in their order') end

local part, wanted, moved, size = partition(1, args.bounds), math.min(left, args.max_count), 0, 0
local free = part.limit == 0 and wanted or 0
while moved < wanted and size < args.max_bytes do  -- one by one: sizes show only here
  if free == 0 then  -- a few at a time: the entries that make room may be large, too
    free = room(part, math.min(wanted - moved, 10))
    if free <= 0 then break end
  end
  local record = redis.call('LPOP', list)
  add(part, '*', 'd', record)
  moved, size, free = moved + 1, size + #record, free - 1
end
if moved == 0 then return {'full', done} end
save(part)
put(mark, 'seq', seq, 'done', done + moved)
if args.kept_s > 0 then redis.call('EXPIRE', mark, args.kept_s) end
return {'ok', done + moved}
