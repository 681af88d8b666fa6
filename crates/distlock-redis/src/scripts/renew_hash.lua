-- renew_hash: renews mutexes, fair locks and writers that their owners still have.
--
-- KEYS  the locks
-- ARGV  1 '1' to have the server tell this connection when one of them changes, then for each lock: owner, ttl in ms
-- Gives 1 or 0 for each. A writer's lock is never made shorter, for nested readers count on it. A key that became
-- something else is not ours any more. The last PTTL is only read to be tracked: a write forgets who tracks.
local out = {}
for i, key in ipairs(KEYS) do
  local field, ttl = ARGV[2 * i], ARGV[2 * i + 1]
  local mine = redis.pcall('HEXISTS', key, field)
  if type(mine) == 'table' then
    if not string.find(mine['err'], 'WRONGTYPE', 1, true) then return mine end
    mine = 0
  end
  if mine == 1 then
    if string.sub(field, -6) ~= ':write' or redis.call('PTTL', key) < tonumber(ttl) then
      redis.call('PEXPIRE', key, ttl)
    end
    if ARGV[1] == '1' then redis.call('PTTL', key) end
  end
  out[i] = mine
end
return out
