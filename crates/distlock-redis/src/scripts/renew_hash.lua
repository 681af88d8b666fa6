-- renew_hash: renews mutexes, fair locks and writers that their owners still have.
--
-- KEYS  the locks (see keys)
-- ARGV  for each lock: owner, ttl in ms
-- Gives 1 or 0 for each, -1 for one to be asked for by itself. A writer's lock is never made shorter, for nested readers
-- count on it. A key that became something else is not ours any more.
local out = {}
for i, key in ipairs(keys) do
  local field, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local mine = redis.pcall('HEXISTS', key, field)
  if type(mine) == 'table' then
    local answer = failed(mine)
    if not answer then return mine end
    mine = answer
  end
  if mine == 1 then
    if string.sub(field, -6) ~= ':write' or redis.call('PTTL', key) < tonumber(ttl) then
      redis.call('PEXPIRE', key, ttl)
    end
  end
  out[i] = mine
end
return out
