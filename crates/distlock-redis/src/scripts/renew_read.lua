-- renew_read: renews shares of read/write locks that their owners still have.
--
-- KEYS  for each share: lock, this reader's life (see keys)
-- ARGV  for each share: owner, ttl in ms
-- Gives 1 or 0 for each, -1 for one to be asked for by itself. A share whose life ended is lost, even if the lock goes on
-- for other readers.
local out = {}
for i = 1, #keys / 2 do
  local lock, life = keys[2 * i - 1], keys[2 * i]
  local owner, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local mine = redis.pcall('HEXISTS', lock, owner)
  if type(mine) == 'table' then
    local answer = failed(mine)
    if not answer then return mine end
    mine = answer
  end
  if mine == 1 then
    mine = redis.call('PEXPIRE', life, ttl)
    if mine == 1 and redis.call('PTTL', lock) < tonumber(ttl) then redis.call('PEXPIRE', lock, ttl) end
  end
  out[i] = mine
end
return out
