-- Decide what a batch consists of. This is the batch's commit.
--
-- KEYS: sink.
-- Arguments: token, query, batch, manifest, replaces (the seq of a lost manifest that this one may
--   replace; ''), kept_s (seconds that the decision is kept; 0: forever).
-- Answers ok (this manifest), again (the batch was decided before; that manifest counts), done (and
--   published), pending (publish another batch first), other (another query has this name); then
--   seq and manifest. Or stale, with the token that counts; or back (a later batch of this query
--   was decided), with its number.
--
-- Invariant: at most one manifest is unpublished, and each (query, batch) gets one manifest. Only
-- this script writes `manifest`, only if it is empty or has the seq that the caller saw as lost,
-- and only `finish` clears it, by its seq. A batch number of a query never goes down, so a batch
-- that was decided before is found by its mark.
local sink, token, query, batch = KEYS[1], args.token, args.query, args.batch
local mark = 'batch:' .. query
check_format(sink)
local fence, last, decided, last_seq, manifest, last_token =
  fields_of(sink, 'fence', 'query', mark, 'seq', 'manifest', 'token')
local seq, is_newest = last_seq or '0', last == query and decided == batch
manifest = manifest or ''
-- A repeated call, after its answer was lost, may come later than the next driver's fence. The
-- batch was decided all the same.
if is_newest and manifest == args.manifest then return {'again', seq, manifest} end
if fence and less(token, fence) then return {'stale', fence} end
local replaces = is_newest and manifest ~= '' and seq == args.replaces
if decided and not less(decided, batch) and not replaces then
  if decided ~= batch then return {'back', decided} end
  return is_newest and manifest ~= '' and {'again', seq, manifest} or {'done'}
end
if manifest ~= '' and seq ~= args.replaces then return {'pending', seq, manifest} end
if last and last ~= query and not less(last_token, token) then return {'other', last} end
seq = later_than(last_seq)
put(sink, 'fence', token, 'token', token, 'query', query, mark, batch, 'seq', seq,
  'manifest', args.manifest)
if args.kept_s > 0 then redis.call('EXPIRE', sink, args.kept_s) end
return {'ok', seq, ''}
