-- What Redis knows of a stream, by name; empty where there is none.
local function told_of(stream)
  local told = {}
  if redis.call('EXISTS', stream) == 0 then return told end
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do told[info[i]] = info[i + 1] end
  return told
end

-- How many entries were ever taken away from a stream.
local function removed(stream)
  local told = told_of(stream)
  return string.format('%.0f', (told['entries-added'] or 0) - (told['length'] or 0))
end

-- The greatest entry up to an id ('earliest', 'latest' too); 0-0 where there is none.
local function entry_at(stream, id)
  if id == 'earliest' then return '0-0' end
  local found = redis.call('XREVRANGE', stream, id == 'latest' and '+' or id, '-', 'COUNT', 1)
  return #found > 0 and found[1][1] or '0-0'
end

-- Whether events of a range may be gone: '' or why not all of it is there. `start` is an id, or
-- '(id' where the range begins with that id; with a word nothing is, since `earliest` and `latest`
-- ask for what is there. `stop` is an edge, too. Trimming takes the oldest first, so an entry
-- before the range shows that none of it was trimmed. Without one, Redis knows how many were
-- removed, and not which. Of entries removed by XDEL it knows the greatest id.
local function lack_of(stream, start, from, stop)
  local id, told = string.match(start, '^%(?(%d+%-%d+)$'), told_of(stream)
  local last = told['last-generated-id']
  if not id or not last then return '' end
  local begins_with_id = string.sub(start, 1, 1) == '('
  if before(last, id) or last == id and not begins_with_id then return '' end  -- nothing ever lay there
  if from == '0-0' and removed(stream) ~= '0' then return 'trimmed' end
  local deleted = told['max-deleted-entry-id']
  if before(deleted, id) or deleted == id and not begins_with_id then return '' end
  local stop_id = string.match(stop, '^%(?(%d+%-%d+)$')
  local ends_before_id = string.sub(stop, 1, 1) == '('
  if stop_id and (before(stop_id, deleted) or stop_id == deleted and ends_before_id) then return '' end
  return 'deleted'
end

-- What is told of events that are gone: why, how many were removed, the first one left and the
-- greatest removed by XDEL.
local function gone(why, stream)
  local told, first = told_of(stream), redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  return {'gone', why, removed(stream), first and first[1] or '', told['max-deleted-entry-id'] or '0-0',
    told['last-generated-id'] or '0-0'}
end

-- A number greater than this one, and than all that were given out before it was lost: microseconds
-- of Redis' clock.
local function later_than(number)
  local time = redis.call('TIME')
  local now = time[1] .. string.format('%06d', time[2])
  if number and not less(number, now) then return string.format('%.0f', tonumber(number) + 1) end
  return now
end

-- Trims what all have passed. Not while Redis has lost how long events stay and this query does not
-- know it: then there are segments, and no counts. The next event brings the counts back.
local function trim_passed(part)
  if part.says or part.is_known or redis.call('EXISTS', part.segments) == 0 then trim(part, '', '') end
end

-- Has trimming wait for a query. How many entries were ever removed tells later, of 0-0, whether
-- more were.
local function registered(at, part, group, from, advanced)
  move_offset(part, group, from)
  put(at, 'from', from, 'removed', removed(part.stream), 'anchored', '0', 'advanced', advanced)
  redis.call('HINCRBY', at, 'epoch', 0)
  return from
end
