-- Adds as many records as there is room for. What the sender's last call did is kept, also where that was
-- nothing: a retry gets that answer, and a call that comes too late does nothing.
-- KEYS: the partition's, sent. ARGV: number of the sender's call, whether ids are wanted, the partition's, records...
-- Returns how many were added, and their ids, or else the last one.
local number = tonumber(ARGV[1])
local sent = redis.call('HMGET', KEYS[6], 'number', 'count', 'ids')
if sent[1] and number == tonumber(sent[1]) then return {tonumber(sent[2]), sent[3]} end
if sent[1] and number < tonumber(sent[1]) then return redis.error_reply('ERR an append came too late') end
local part, wanted = partition(1, 3), #ARGV - 6
local count, ids = math.min(wanted, math.max(room(part, wanted, '', ''), 0)), {}
for i = 1, count do ids[i] = add(part, '*', 'd', ARGV[i + 6]) end
if count > 0 then save(part) end
local told = ARGV[2] == '1' and table.concat(ids, ' ') or ids[count] or ''
put(KEYS[6], 'number', number, 'count', count, 'ids', told)
redis.call('EXPIRE', KEYS[6], 600)
return {count, told}
