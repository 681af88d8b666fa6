-- check: which of these locks their owners still have.
--
-- KEYS  the locks
-- ARGV  for each: owner (field of the hash, or value of the string)
-- Gives 1 or 0 for each.
local out = {}
for i, key in ipairs(KEYS) do
  local mine = redis.pcall('HEXISTS', key, ARGV[i])
  if type(mine) == 'table' then
    local value = redis.pcall('GET', key)
    mine = value == ARGV[i] and 1 or 0
  end
  out[i] = mine
end
return out
