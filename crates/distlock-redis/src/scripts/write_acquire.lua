-- write_acquire: takes a Redisson read/write lock alone, in turn if our line has waiters.
--
-- KEYS  1 lock (hash: mode, owner:write -> count)  2 record of the last token  3 line  4 seen
-- ARGV  1 owner:write  2 ttl in ms  3 description  4 'any', 'try' (in order, but does not join) or 'join'
-- Gives the token; or {'wait', ms left, holder, record, ahead, recheck ms}; or {'kind', what}. Asked again it gives
-- the same token.
local left = redis.call('PTTL', KEYS[1])
local first = true
local now
if redis.call('EXISTS', KEYS[3]) == 1 then
  now = now_ms()
  local owner = waiting(KEYS[3], KEYS[4], now)[1]
  first = not owner or owner == ARGV[1]
end
if left == -2 and first then
  local token = mint(KEYS[2], ARGV[3])
  if now then leave(KEYS[3], KEYS[4], ARGV[1]) end
  redis.call('HSET', KEYS[1], 'mode', 'write', ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return token
end
local record = redis.call('GET', KEYS[2])
local holder = ''
if left ~= -2 then
  local kind = redis.call('TYPE', KEYS[1])['ok']
  if kind ~= 'hash' then return {'kind', kind} end
  local fields = redis.call('HKEYS', KEYS[1])
  if redis.call('HEXISTS', KEYS[1], 'mode') == 0 then
    return {'kind', string.match(fields[1], ':%-?%d+$') and 'a mutex' or 'a hash that is no lock'}
  end
  if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    local owner = string.sub(ARGV[1], 1, -7)
    if record and string.find(record, owner, 1, true) then return tonumber(string.match(record, '^%d+')) end
    return mint(KEYS[2], ARGV[3])
  end
  for _, field in ipairs(fields) do
    if field ~= 'mode' then holder = field end
  end
end
local ahead, recheck = false, 10000
if ARGV[4] == 'join' then ahead, recheck = join(KEYS[3], KEYS[4], ARGV[1], now or now_ms(), ARGV[2]) end
if left == -2 then recheck = math.min(recheck, 2000) end
return {'wait', left, holder, record or '', ahead or redis.call('LLEN', KEYS[3]), recheck}
