-- How many entries were ever taken away from a stream.
local function removed(stream)
  if redis.call('EXISTS', stream) == 0 then return '0' end
  local info, added, length = redis.call('XINFO', 'STREAM', stream), 0, 0
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' then added = info[i + 1] end
    if info[i] == 'length' then length = info[i + 1] end
  end
  return string.format('%.0f', added - length)
end

-- The greatest entry up to an id ('earliest', 'latest' too); 0-0 where there is none.
local function entry_at(stream, id)
  if id == 'earliest' then return '0-0' end
  local found = redis.call('XREVRANGE', stream, id == 'latest' and '+' or id, '-', 'COUNT', 1)
  return #found > 0 and found[1][1] or '0-0'
end

-- Whether events behind an id may be gone: no entry up to there is left to show that none is, and some were removed.
-- Which ones, Redis does not know. What is there is all that `earliest`, `latest` and a time, '(id', ask for.
local function may_lack(stream, id, from)
  return from == '0-0' and string.match(id, '^%d') and before(id, last_id(stream)) and removed(stream) ~= '0'
end

-- A number greater than this one, and than all that were given out before it was lost: microseconds of Redis' clock.
local function later_than(number)
  local time = redis.call('TIME')
  local now = time[1] .. string.format('%06d', time[2])
  if number and not less(number, now) then return string.format('%.0f', tonumber(number) + 1) end
  return now
end

-- Has trimming wait for a query. How many entries were ever removed tells later, of 0-0, whether more were.
local function registered(at, offsets, stream, group, from, advanced)
  put(offsets, group, from)
  put(at, 'from', from, 'removed', removed(stream), 'anchored', '0', 'advanced', advanced)
  redis.call('HINCRBY', at, 'epoch', 0)
  return from
end
