-- renew_hash: renews mutexes, fair locks and writers that their owners still have.
--
-- KEYS  the locks
-- ARGV  for each lock: owner, ttl in ms
-- Gives 1 or 0 for each. A writer's lock is never made shorter, for nested readers count on it. A key that became
-- something else is not ours any more.
local out = {}
for i, key in ipairs(KEYS) do
  local field, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local mine = redis.pcall('HEXISTS', key, field)
  if type(mine) == 'table' then
    if not string.find(mine['err'], 'WRONGTYPE', 1, true) then return mine end
    mine = 0
  end
  if mine == 1 then
    if string.sub(field, -6) ~= ':write' or redis.call('PTTL', key) < tonumber(ttl) then
      redis.call('PEXPIRE', key, ttl)
    end
  end
  out[i] = mine
end
return out
