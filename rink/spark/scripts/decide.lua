-- Decides on what a batch consists of: this is its commit. KEYS: sink. ARGV: token, query, batch, manifest.
-- Answers: ok (this manifest), again (the batch was decided before; that manifest counts, '' where it is published),
-- pending (another batch is to be published first), other (another query with this name); then seq, manifest.
local sink, token, query, batch = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local found = redis.call('HMGET', sink, 'fence', 'query', 'batch', 'seq', 'manifest', 'token')
local seq, manifest = found[4] or '0', found[5] or ''
if found[1] and less(token, found[1]) then return {'stale', found[1]} end
if found[2] == query and not less(found[3] or '', batch) then
  return {'again', seq, found[3] == batch and manifest or ''}
end
if manifest ~= '' then return {'pending', seq, manifest} end
if found[2] and found[2] ~= query and not less(found[6], token) then return {'other', found[2]} end
seq = string.format('%.0f', tonumber(seq) + 1)
redis.call('HSET', sink, 'fence', token, 'token', token, 'query', query, 'batch', batch, 'seq', seq, 'manifest', ARGV[4])
return {'ok', seq, ''}
