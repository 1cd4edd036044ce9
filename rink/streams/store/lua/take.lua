-- Makes the owner with this token the owner of the partition, and returns its first events.
-- KEYS: at, the partition's 5.
-- Arguments: processor, token, start (earliest or latest, for a processor without an offset), first
--   (the most first events), max_bytes (the most bytes of them), loses, now_us, known.
--   `known` is the memory of an owner that retakes its partition after a reconnect: epoch, offset
--   and seen, the last id that it has read. A new owner leaves it out.
--
-- 1. A token below the fence is refused. So of two owners, the later one wins for good.
-- 2. Then `is_back` finds out whether Redis has lost data, before anything is written. The offset
--    must not lie behind the end of the stream. There must be an epoch, since `register` writes it
--    together with the offset. If a commit wrote the offset (`anchored`), its event must still
--    exist, since nothing removes it without `loses`. An owner that retakes its partition knows
--    more: the fence must be its own, epoch and offset must not be lower than it knows, and the
--    last event that it has read must exist or be passed by the offset.
-- 3. If the previous owner has not closed (`open`), it has crashed. All events up to its ceiling
--    may have been begun, so they are run one by one: `careful`. If it had marked an event, one
--    more crash counts against that event.
-- 4. Only a new owner sets the fence, removes the mark, and lowers the ceiling to the first events.
--    A retake leaves them: the owner's events up to the ceiling are still being processed.
--    A retry of a new owner's take, after a lost answer, comes with the same token. It counts no
--    crash, since `fence` is its own already. If it arrives after a later mark of the same owner,
--    it is `late`, and leaves fence, mark and ceiling alone.
local at, stream, offsets = KEYS[1], KEYS[2], KEYS[3]
local processor, token, loses, known = args.processor, args.token, args.loses, args.known
check_format(at)
local fence = redis.call('HGET', at, 'fence')
if fence and less(token, fence) then return {'stale', fence} end

local last = last_id(stream)
local stored_epoch, anchored, marked = fields_of(at, 'epoch', 'anchored', 'marked')
local late = fence == token and marked and less(args.now_us, marked)
local offset = redis.call('HGET', offsets, processor)
local is_back = offset and (before(last, offset) or not stored_epoch)
  or offset and anchored == '1' and not loses and not has_entry(stream, offset)
if known then
  local seen = known.seen
  is_back = is_back or fence ~= token or not offset or less(stored_epoch or '0', known.epoch)
    or stored_epoch == known.epoch and before(offset, known.offset)
    or before(last, seen) or before(offset, seen) and not loses and not has_entry(stream, seen)
end
if is_back then return {'back', fence or 'none', offset or 'none', last} end

offset = register(at, partition(2), processor, args.start)
local epoch, open, suspect, careful, quarantined, ceiling, told = fields_of(
  at, 'epoch', 'open', 'suspect', 'careful', 'quarantined', 'ceiling', 'told'
)
if open == '1' and fence ~= token then
  careful = ceiling
  if suspect and before(offset, suspect) then redis.call('HINCRBY', at, 'end:' .. suspect, 1) end
  redis.call('HINCRBY', at, 'unclean', 1)
end
if careful and before(offset, careful) then redis.call('HSET', at, 'careful', careful)
else redis.call('HDEL', at, 'careful'); careful = nil end
local first, left_out = {}, 0
if not quarantined and args.first > 0 then
  first, left_out = entries(stream, offset, args.first, args.max_bytes)
end
if not known and not late then
  ceiling = #first > 0 and first[#first][1] or offset
  redis.call('HSET', at, 'ceiling', ceiling)
  redis.call('HDEL', at, 'suspect')
  -- `marked` makes mark.lua ignore a mark that was sent before this take and arrives after it.
  redis.call('HSET', at, 'fence', token, 'open', quarantined and '0' or '1', 'marked', args.now_us)
  if not careful then redis.call('HSET', at, 'told', args.now_us) end
end

-- Return how many owners have ended at each suspect, and delete the counts of suspects that the
-- offset has passed.
local ends, all = {}, redis.call('HGETALL', at)
for i = 1, #all, 2 do
  local id = string.match(all[i], '^end:(.+)$')
  if id and before(offset, id) then
    ends[#ends + 1] = id
    ends[#ends + 1] = all[i + 1]
  elseif id then
    redis.call('HDEL', at, all[i])
  end
end
local paused = redis.call('HGET', at, 'paused') or ''
return {
  'ok', offset, epoch, careful or '', quarantined or '', ends, first, told or '0', paused, left_out,
}
