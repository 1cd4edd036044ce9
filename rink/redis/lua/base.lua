-- Every script begins with this file.

-- The named arguments of the script. Tokens, times and other numbers that may need more than the 53
-- bits of a Lua number are text. An argument that is left out is nil.
local args = cjson.decode(ARGV[1])

-- Compares numbers as text, since a Lua number is exact only up to 2^53.
local function less(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end

-- The format of Rink's data. Each hash has it as the field `format`, from the first write on.
local FORMAT = '1'

-- Raises an error if a hash has another format or none. Steps call it before their first write.
local function check_format(key)
  local found = redis.call('HGET', key, 'format')
  if found == FORMAT or not found and redis.call('EXISTS', key) == 0 then return end
  error({err = 'FORMAT ' .. (found or 'none') .. ' ' .. key})
end

-- Sets fields of a hash that may not exist yet, so it gets its format, too.
local function put(key, ...)
  redis.call('HSET', key, 'format', FORMAT, ...)
end
