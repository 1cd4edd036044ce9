-- Write one part, once.
--
-- KEYS: its hash; on a cluster also all keys that it writes.
-- Arguments: token, query, batch, digest (of the commands), lengths (how many words each command has).
-- ARGV[2] and on: the words of all commands.
-- Answers ok, before (it was written before), stale, unknown (no `begin` under this token), failed
--   (how many commands were carried out, why), or torn (other commands failed before).
--
-- Invariant: each command of a part is carried out once. The mark is set after the last command, in
-- the same step. Redis does not roll back when a command fails. So `torn` then stores how many
-- commands were carried out, and their digest: the same part continues there, another is refused.
local at, token, query, batch, digest = KEYS[1], args.token, args.query, args.batch, args.digest
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
local first = 2
for n, length in ipairs(args.lengths) do
  local last = first + length - 1
  if n > done then
    local reply = redis.pcall(unpack(ARGV, first, last))
    if type(reply) == 'table' and reply.err then
      if n > 1 then
        redis.call('HSET', at, 'torn:' .. query, string.format('%s %s %d', batch, digest, n - 1))
      end
      return {'failed', tostring(n - 1), reply.err}
    end
  end
  first = last + 1
end
redis.call('HSET', at, 'mark:' .. query, batch)
if torn then redis.call('HDEL', at, 'torn:' .. query) end
return {'ok'}
