-- mutex_acquire: takes a Redisson mutex if it is free and nobody waits in its fair queue.
--
-- KEYS  1 lock (hash: owner -> count)  2 fair queue (list)  3 record of the last token  [4 fenced counter]
-- ARGV  1 owner  2 ttl in ms  3 description
-- Gives the token; or {'wait', ms left, holder, record}; or {'line'} if the lock is free but somebody is in line;
-- or {'kind', what} if the key is something else. Asked again by the same owner it gives the same token.
-- The usual case is first, and is five commands: their number is what a lock costs the server.
local lock = KEYS[1]
if call('EXISTS', lock, KEYS[2]) == 0 then
  local token = mint(KEYS[3], ARGV[3], KEYS[4])
  call('HSET', lock, ARGV[1], '1')
  call('PEXPIRE', lock, ARGV[2])
  return token
end
local left = call('PTTL', lock)
if left == -2 then return {'line'} end
local kind = call('TYPE', lock)['ok']
if kind ~= 'hash' then return {'kind', kind} end
if call('HEXISTS', lock, 'mode') == 1 then return {'kind', 'a read/write lock'} end
local record = call('GET', KEYS[3])
if call('HEXISTS', lock, ARGV[1]) == 1 then
  call('PEXPIRE', lock, ARGV[2])
  if record and string.find(record, ARGV[1], 1, true) then return tonumber(string.match(record, '^%d+')) end
  return mint(KEYS[3], ARGV[3], KEYS[4])
end
return {'wait', left, call('HKEYS', lock)[1], record}
