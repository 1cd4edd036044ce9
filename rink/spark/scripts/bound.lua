-- How far so many entries reach. KEYS: stream. ARGV: behind this id, up to this one, the most.
local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
return {#found, #found > 0 and found[#found][1] or ARGV[1]}
