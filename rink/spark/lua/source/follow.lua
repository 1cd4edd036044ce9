-- Check and advance a reader before it plans a batch. Its checkpoint says that all events before
-- `start` were processed.
--
-- KEYS: at, the partition's.
-- Arguments: group, token, run, start, strict (do not advance if events are gone), bounds.
-- Answers ok, the last entry's id, the answer of `gone` if events after `start` are gone, and the
--   group's offset if this run begins before it ('' if not). Or gone alone. Or old, with the
--   group's offset: events are gone, but the group had passed them.
--
-- Invariant: only the newest run under the newest token moves the offset. Both are checked and
-- stored in this step, so no older reader can move it afterwards. The first call of a run may move
-- the offset back, since its checkpoint decides where it reads on; later calls only move it ahead.
local at, stream, offsets, group, start = KEYS[1], KEYS[2], KEYS[3], args.group, args.start
check_format(at)
check_format(offsets)
local part = partition(2, args.bounds)
local fence, run, from, was_removed, followed =
  fields_of(at, 'fence', 'run', 'from', 'removed', 'followed')
if fence and less(args.token, fence) then return {'stale', fence} end
local offset = redis.call('HGET', offsets, group)
if offset and not from then return {'worker', offset} end
if run and less(args.run, run) then return {'other'} end

-- As long as the entry at an offset is there, nothing after it was removed: trimming takes the
-- oldest entry first.
local lacks = start ~= '0-0' and not has_entry(stream, start)
  or start == '0-0' and removed(stream) ~= (offset and was_removed or '0')
local is_first, older = followed ~= args.run, ''
if is_first and offset and before(start, offset) then older = offset end
if lacks and args.strict then
  return older ~= '' and {'old', older} or gone('trimmed', stream)
end

if not offset then  -- the group was forgotten, but nothing is lost yet
  registered(at, part, group, start, '1')
-- a run's first call may move back
elseif is_first and offset ~= start or before(offset, start) then
  move_offset(part, group, start)
  redis.call('HSET', at, 'advanced', '1')
end
put(at, 'fence', args.token, 'run', args.run, 'followed', args.run)
trim_passed(part)
return {'ok', entry_at(stream, 'latest'), lacks and gone('trimmed', stream) or {}, older}
