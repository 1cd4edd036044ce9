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
