-- raise: raises the stored token of a lock that the owner still has (the second phase of a quorum's grant).
--
-- KEYS  1 lock  2 record of the last token
-- ARGV  1 owner (field of the hash, or value of the string)  2 the least token to store
-- Gives 1 if the owner has the lock, else 0.
local kind = redis.call('TYPE', KEYS[1])['ok']
local mine = (kind == 'hash' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1)
  or (kind == 'string' and redis.call('GET', KEYS[1]) == ARGV[1])
if not mine then return 0 end
local record = redis.call('GET', KEYS[2]) or '0 {}'
if tonumber(string.match(record, '^%d+') or 0) < tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], ARGV[2] .. (string.match(record, '^%d+(.*)$') or ' {}'), 'PX', 86400000)
end
return 1
