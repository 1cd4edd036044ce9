-- Register a new query as a group of the stream. Until the group has advanced, a repeated call
-- gives the same answer.
--
-- KEYS: at, the partition's.
-- Arguments: group, token, start ('earliest', 'latest', or an id: the greatest entry up to it
--   counts), strict (do not register if events are gone), looks (change nothing), by (the reader's
--   id).
-- Answers ok, where it begins, and 1 if it was registered before; or gone: events after `start`
--   may be gone.
--
-- An offset is the id of an entry, or 0-0 for the beginning. Invariant: `from` is written once per
-- registration, in the step that adds the group to the offsets. So trimming waits for the group
-- from the first entry that it may read, and a repeated start reads the same first batch.
local at, stream, offsets, group = KEYS[1], KEYS[2], KEYS[3], args.group
local start, looks, part = args.start, args.looks, partition(2)
check_format(at)
check_format(offsets)
local found = redis.call('HMGET', at, 'fence', 'advanced', 'from')
if found[1] and less(args.token, found[1]) then return {'stale', found[1]} end
local offset = redis.call('HGET', offsets, group)
if offset and not found[3] then return {'worker', offset} end
if offset and found[2] == '1' then return {'used', offset} end
if offset and not looks then put(at, 'by', args.by) end
if offset then return {'ok', found[3], 1} end
local from = entry_at(stream, start)
local why = lack_of(stream, start, from, 'latest')
if why ~= '' and (args.strict or looks) then return gone(why, stream) end
if not looks then
  registered(at, part, group, from, '0')
  put(at, 'by', args.by)
end
return {'ok', from, 0}
