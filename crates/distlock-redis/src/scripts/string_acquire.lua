-- string_acquire: takes a plain lock, as SET NX PX would.
--
-- KEYS  1 lock (string)  2 record of the last token
-- ARGV  1 value  2 ttl in ms  3 description  4 owner  [5 proposed token]
-- Gives the token; or {'wait', ms left, value, record}; or {'kind', what}. Asked again it gives the same token.
-- The token is minted first, so that a record of a foreign type fails before anything was written.
if redis.call('EXISTS', KEYS[1]) == 0 then
  local token = mint(KEYS[2], ARGV[3], nil, ARGV[5])
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return token
end
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'string' then return {'kind', kind == 'hash' and 'a Redisson lock (or another hash)' or kind} end
local record = redis.call('GET', KEYS[2])
local value = redis.call('GET', KEYS[1])
if value == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if record and string.find(record, ARGV[4], 1, true) then return tonumber(string.match(record, '^%d+')) end
  return mint(KEYS[2], ARGV[3], nil, ARGV[5])
end
return {'wait', redis.call('PTTL', KEYS[1]), value, record or ''}
