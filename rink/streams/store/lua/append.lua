-- Adds as many records as there is room for.
--
-- A sender's calls for one partition have rising numbers and come one after the other. `sent` keeps
-- the answer to the last call for ten minutes, even if nothing was added. So a retry with the same
-- number gets that answer and adds nothing more, and a call that arrives after a later one fails.
--
-- KEYS: the partition's 5, sent.
-- Arguments: number of the sender's call, wants_ids (false: return only the last id), bounds.
-- ARGV[2] and on: the records.
-- Returns how many were added, and their ids.
local number, sent = args.number, redis.call('GET', KEYS[6])
if sent then
  local last, count, ids = string.match(sent, '^(%d+) (%d+) (.*)$')
  if number == last then return {tonumber(count), ids} end
  if less(number, last) then return redis.error_reply('ERR an append came too late') end
end
local part, wanted = partition(1, args.bounds), #ARGV - 1
local count, ids = math.min(wanted, math.max(room(part, wanted, '', ''), 0)), {}
for i = 1, count do ids[i] = add(part, '*', 'd', ARGV[i + 1]) end
if count > 0 then save(part) end
local answered_ids = args.wants_ids and table.concat(ids, ' ') or ids[count] or ''
redis.call('SET', KEYS[6], number .. ' ' .. count .. ' ' .. answered_ids, 'EX', 600)
return {count, answered_ids}
