-- Register a new query as a group of the stream. Until the group has advanced, a repeated call
-- gives the same answer.
--
-- KEYS: at, the partition's.
-- Arguments: group, token, start ('earliest', 'latest', or an id: the greatest entry up to it
--   counts), strict (do not register if events are gone), dry_run (change nothing), by (the
--   reader's id).
-- Answers ok, where it begins, and 1 if it was registered before; or gone: events after `start`
--   may be gone.
--
-- An offset is the id of an entry, or 0-0 for the beginning. Invariant: `from` is written once per
-- registration, in the step that adds the group to the offsets. So trimming waits for the group
-- from the first entry that it may read, and a repeated start reads the same first batch.
local at, stream, offsets, group = KEYS[1], KEYS[2], KEYS[3], args.group
local start, dry_run, part = args.start, args.dry_run, partition(2)
check_format(at)
check_format(offsets)
local fence, advanced, first = fields_of(at, 'fence', 'advanced', 'from')
if fence and less(args.token, fence) then return {'stale', fence} end
local offset = redis.call('HGET', offsets, group)
if offset and not first then return {'worker', offset} end
if offset and advanced == '1' then return {'used', offset} end
if offset and not dry_run then put(at, 'by', args.by) end
if offset then return {'ok', first, 1} end
local from = entry_at(stream, start)
local why = lack_of(stream, start, from, 'latest')
if why ~= '' and (args.strict or dry_run) then return gone(why, stream) end
if not dry_run then
  registered(at, part, group, from, '0')
  put(at, 'by', args.by)
end
return {'ok', from, 0}
