-- Write one part, once.
--
-- KEYS: its hash; on a cluster also all keys that it writes.
-- ARGV: token, query, batch, digest of the commands, how many; then for each command: how many
--   words, and the words.
-- Answers ok, before (it was written before), stale, unknown (no `begin` under this token), failed
--   (how many commands were carried out, why), or torn (other commands failed before).
--
-- Invariant: each command of a part is carried out once. The mark is set after the last command, in
-- the same step. Redis does not roll back when a command fails. So `torn` then stores how many
-- commands were carried out, and their digest: the same part continues there, another is refused.
local at, token, query, batch, digest = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count = tonumber(ARGV[5])
local found = redis.call('HMGET', at, 'fence', 'mark:' .. query, 'torn:' .. query)
local fence, mark, torn = found[1], found[2], found[3]
if fence and less(token, fence) then return {'stale', fence} end
if fence ~= token then return {'unknown', fence or ''} end
if mark and not less(mark, batch) then return {'before'} end
local done = 0
if torn then
  local of_batch, of_digest, carried_out = string.match(torn, '^(%d+) (%x+) (%d+)$')
  if of_batch ~= batch or of_digest ~= digest then return {'torn', torn} end
  done = tonumber(carried_out)
end
local i = 6
for n = 1, count do
  local words = tonumber(ARGV[i])
  if n > done then
    local reply = redis.pcall(unpack(ARGV, i + 1, i + words))
    if type(reply) == 'table' and reply.err then
      if n > 1 then
        redis.call('HSET', at, 'torn:' .. query, string.format('%s %s %d', batch, digest, n - 1))
      end
      return {'failed', tostring(n - 1), reply.err}
    end
  end
  i = i + words + 1
end
redis.call('HSET', at, 'mark:' .. query, batch)
if torn then redis.call('HDEL', at, 'torn:' .. query) end
return {'ok'}
