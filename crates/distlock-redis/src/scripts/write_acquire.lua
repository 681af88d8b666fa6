-- write_acquire: takes a Redisson read/write lock alone.
--
-- KEYS  1 lock (hash: mode, owner:write -> count)  2 record of the last token
-- ARGV  1 owner:write  2 ttl in ms  3 description
-- Gives the token; or {'wait', ms left, holder, record}; or {'kind', what}. Asked again it gives the same token.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  local token = mint(KEYS[2], ARGV[3])
  redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return token
end
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'hash' then return {'kind', kind} end
if redis.call('HEXISTS', KEYS[1], 'mode') == 0 then return {'kind', 'a mutex'} end
local record = redis.call('GET', KEYS[2])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  local owner = string.sub(ARGV[1], 1, -7)
  if record and string.find(record, owner, 1, true) then return tonumber(string.match(record, '^%d+')) end
  return mint(KEYS[2], ARGV[3])
end
local holder = ''
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if field ~= 'mode' then holder = field end
end
return {'wait', left, holder, record or ''}
