-- Return the last decision. KEYS: sink. Answers seq, manifest ('' if it is published).
check_format(KEYS[1])
local seq, manifest = fields_of(KEYS[1], 'seq', 'manifest')
return {seq or '0', manifest or ''}
