-- renew_string: renews plain locks that still have our value.
--
-- KEYS  the locks (see keys)
-- ARGV  for each lock: value, ttl in ms
-- Gives 1 or 0 for each, -1 for one to be asked for by itself.
local out = {}
for i, key in ipairs(keys) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    local answer = failed(value)
    if not answer then return value end
    out[i] = answer
  elseif value == ARGV[2 * i - 1] then
    redis.call('PEXPIRE', key, ARGV[2 * i])
    out[i] = 1
  else
    out[i] = 0
  end
end
return out
