-- Return what XINFO reports of a stream, by name; empty if there is no stream.
local function told_of(stream)
  local told = {}
  if redis.call('EXISTS', stream) == 0 then return told end
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do told[info[i]] = info[i + 1] end
  return told
end

-- Return how many entries were ever removed from a stream.
local function removed(stream)
  local told = told_of(stream)
  return string.format('%.0f', (told['entries-added'] or 0) - (told['length'] or 0))
end

-- Return the greatest entry up to an id ('earliest' and 'latest', too); 0-0 if there is none.
local function entry_at(stream, id)
  if id == 'earliest' then return '0-0' end
  local found = redis.call('XREVRANGE', stream, id == 'latest' and '+' or id, '-', 'COUNT', 1)
  return #found > 0 and found[1][1] or '0-0'
end

-- Return why events of a range may be gone; '' if all of them are there. `start` is an id, or '(id'
-- if the range begins with that id. A word never lacks anything, since `earliest` and `latest` ask
-- for what is there. `stop` is an edge, too. Invariant: trimming takes the oldest entry first. So
-- an entry before the range proves that nothing of the range was trimmed. Without such an entry,
-- Redis only knows how many entries were removed. XDEL can remove any entry; Redis knows its
-- greatest id.
local function lack_of(stream, start, from, stop)
  local id, told = string.match(start, '^%(?(%d+%-%d+)$'), told_of(stream)
  local last = told['last-generated-id']
  if not id or not last then return '' end
  local begins_with_id = string.sub(start, 1, 1) == '('
  -- nothing was ever there
  if before(last, id) or last == id and not begins_with_id then return '' end
  if from == '0-0' and removed(stream) ~= '0' then return 'trimmed' end
  local deleted = told['max-deleted-entry-id']
  if before(deleted, id) or deleted == id and not begins_with_id then return '' end
  local stop_id = string.match(stop, '^%(?(%d+%-%d+)$')
  local ends_before_id = string.sub(stop, 1, 1) == '('
  if stop_id and (before(stop_id, deleted) or stop_id == deleted and ends_before_id) then
    return ''
  end
  return 'deleted'
end

-- Describe events that are gone: why, how many were removed, the first entry left, the greatest id
-- removed by XDEL, and the last id of the stream.
local function gone(why, stream)
  local told, first = told_of(stream), redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  local first_id, deleted = first and first[1] or '', told['max-deleted-entry-id'] or '0-0'
  return {'gone', why, removed(stream), first_id, deleted, told['last-generated-id'] or '0-0'}
end

-- Return a number greater than this one. It is Redis' time in microseconds, so it is also greater
-- than all numbers that were given out before the key was lost.
local function later_than(number)
  local time = redis.call('TIME')
  local now = time[1] .. string.format('%06d', time[2])
  if number and not less(number, now) then return string.format('%.0f', tonumber(number) + 1) end
  return now
end

-- Trim what all groups have passed. Do not trim while Redis has lost the retention and this query
-- does not know it: then there are segments, but no counts. The next event brings the counts back.
local function trim_passed(part)
  if part.declared or part.is_known or redis.call('EXISTS', part.segments) == 0 then
    trim(part, '', '')
  end
end

-- Make trimming wait for a query. The number of removed entries is stored, so that a later step
-- knows whether entries after 0-0 were removed since.
local function registered(at, part, group, from, advanced)
  move_offset(part, group, from)
  put(at, 'from', from, 'removed', removed(part.stream), 'anchored', '0', 'advanced', advanced)
  redis.call('HINCRBY', at, 'epoch', 0)
  return from
end
