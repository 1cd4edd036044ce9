-- Adds as many records as there is room for. What the sender's last call did is kept, also where that was
-- nothing: a retry gets that answer, and a call that comes too late does nothing.
-- KEYS: stream, offsets, lost, sent. ARGV: number of the sender's call, limit, loses, whether ids are wanted,
-- records... Returns how many were added, and their ids, or else the last one.
local number = tonumber(ARGV[1])
local sent = redis.call('HMGET', KEYS[4], 'number', 'count', 'ids')
if sent[1] and number == tonumber(sent[1]) then return {tonumber(sent[2]), sent[3]} end
if sent[1] and number < tonumber(sent[1]) then return redis.error_reply('ERR an append came too late') end
local wanted = #ARGV - 4
local free = room(KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[2]), ARGV[3] == '1', wanted, '', '')
local count, ids = math.min(wanted, math.max(free, 0)), {}
for i = 1, count do ids[i] = redis.call('XADD', KEYS[1], '*', 'd', ARGV[i + 4]) end
local told = ARGV[4] == '1' and table.concat(ids, ' ') or ids[count] or ''
put(KEYS[4], 'number', number, 'count', count, 'ids', told)
redis.call('EXPIRE', KEYS[4], 600)
return {count, told}
