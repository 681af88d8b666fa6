-- renew_raise: renews locks that their owners still have, and raises their stored tokens: the second phase of a
-- quorum's grant.
--
-- KEYS  for each lock: lock, record of the last token
-- ARGV  for each lock: owner (field of the hash, or value of the string), ttl in ms, the least token to store
-- Gives 1 or 0 for each. Tokens are compared as decimal texts, by length and then by digits, because Lua's numbers
-- are exact to 53 bits only.
local out = {}
for i = 1, #KEYS / 2 do
  local lock, record = KEYS[2 * i - 1], KEYS[2 * i]
  local owner, ttl, least = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  local kind = redis.call('TYPE', lock)['ok']
  local mine = (kind == 'string' and redis.call('GET', lock) == owner)
    or (kind == 'hash' and redis.call('HEXISTS', lock, owner) == 1)
  if mine then
    local old = redis.call('GET', record) or '0 {}'
    local last = string.match(old, '^%d+') or '0'
    if #last < #least or (#last == #least and last < least) then
      redis.call('SET', record, least .. (string.match(old, '^%d+(.*)$') or ' {}'), 'PX', 86400000)
    end
    redis.call('PEXPIRE', lock, ttl)
  end
  out[i] = mine and 1 or 0
end
return out
