-- renew_string: renews plain locks that still have our value.
--
-- KEYS  the locks
-- ARGV  for each lock: value, ttl in ms
-- Gives 1 or 0 for each.
local out = {}
for i, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then
    if not string.find(value['err'], 'WRONGTYPE', 1, true) then return value end
    value = false
  end
  if value == ARGV[2 * i - 1] then
    redis.call('PEXPIRE', key, ARGV[2 * i])
    out[i] = 1
  else
    out[i] = 0
  end
end
return out
