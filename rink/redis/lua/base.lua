-- Every script begins with this file. Tokens and ids are compared as text, since a Lua number is exact up to 2^53 only.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

-- The format of what Rink stores. Each of its hashes has it as the field `format`, from the first write on.
local FORMAT = '1'

-- Ends the step before it has written, if a hash has another format or none.
local function check_format(key)
  local found = redis.call('HGET', key, 'format')
  if found == FORMAT or not found and redis.call('EXISTS', key) == 0 then return end
  error({err = 'FORMAT ' .. (found or 'none') .. ' ' .. key})
end

-- HSET for a hash that may not exist yet.
local function put(key, ...)
  redis.call('HSET', key, 'format', FORMAT, ...)
end
