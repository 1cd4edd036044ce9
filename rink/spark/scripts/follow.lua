-- What a query is told before it plans a batch. All before `start` has been processed, says its checkpoint.
-- KEYS: at, offsets, stream. ARGV: group, token, run, who, claims (1: this run begins), start, strict (1: nothing
-- is advanced where events are gone). Answers ok, or gone: events behind `start` may be; then the last entry's id.
local at, offsets, stream, group, start = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[6]
local found = redis.call('HMGET', at, 'fence', 'run', 'who', 'from', 'removed')
if found[1] and less(ARGV[2], found[1]) then return {'stale', found[1]} end
local offset = redis.call('HGET', offsets, group)
if offset and not found[4] then return {'worker', offset} end
if ARGV[5] ~= '1' and offset and found[2] ~= ARGV[3] then return {'other', found[3] or ''} end

-- As long as the entry at an offset is there, nothing behind it was taken away: the oldest go first.
local gone = start ~= '0-0' and not has_entry(stream, start)
  or start == '0-0' and removed(stream) ~= (offset and found[5] or '0')
if gone and ARGV[7] == '1' then return {'gone', offset or ''} end

if not offset then  -- somebody forgot the group; nothing is lost yet
  redis.call('HSET', at, 'from', start, 'asked', '', 'removed', removed(stream), 'anchored', '0')
  redis.call('HINCRBY', at, 'epoch', 0)
end
if not offset or ARGV[5] == '1' and offset ~= start or before(offset, start) then
  redis.call('HSET', offsets, group, start)
  redis.call('HSET', at, 'advanced', '1')
  trim(stream, offsets, '', '')
end
if ARGV[5] == '1' then redis.call('HSET', at, 'fence', ARGV[2], 'run', ARGV[3], 'who', ARGV[4]) end
return {gone and 'gone' or 'ok', entry_at(stream, 'latest')}
