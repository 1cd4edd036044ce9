-- Adds as many records as there is room for. The answer to a sender's last call is kept for ten minutes, even if it added
-- nothing: a retry gets that answer, and a call that comes too late does nothing.
-- KEYS: the partition's, sent. ARGV: number of the sender's call, whether ids are wanted, the partition's, records...
-- Returns how many were added, and their ids, or else the last one.
local number, sent = tonumber(ARGV[1]), redis.call('GET', KEYS[6])
if sent then
  local last, count, ids = string.match(sent, '^(%d+) (%d+) (.*)$')
  if number == tonumber(last) then return {tonumber(count), ids} end
  if number < tonumber(last) then return redis.error_reply('ERR an append came too late') end
end
local part, wanted = partition(1, 3), #ARGV - 6
local count, ids = math.min(wanted, math.max(room(part, wanted, '', ''), 0)), {}
for i = 1, count do ids[i] = add(part, '*', 'd', ARGV[i + 6]) end
if count > 0 then save(part) end
local told = ARGV[2] == '1' and table.concat(ids, ' ') or ids[count] or ''
redis.call('SET', KEYS[6], ARGV[1] .. ' ' .. count .. ' ' .. told, 'EX', 600)
return {count, told}
