-- read_acquire: takes a share of a Redisson read/write lock, unless a writer has it or is ahead in our line.
--
-- KEYS  1 lock (hash: mode, owner -> count)  2 this reader's life (string)  3 people  4 line  5 seen
-- ARGV  1 owner  2 ttl in ms  3 description  4 'any', 'try' (in order, but does not join) or 'join'  5 channel
-- Gives 0 when held; or {'wait', ms left, holder, '', ahead, recheck ms}; or {'kind', what}. Asked again it is the
-- same share. A contender without order waits while anybody is in line; one in line waits for the writers ahead.
local left = redis.call('PTTL', KEYS[1])
local writer
if left ~= -2 then
  local kind = redis.call('TYPE', KEYS[1])['ok']
  if kind ~= 'hash' then return {'kind', kind} end
  local mode = redis.call('HGET', KEYS[1], 'mode')
  if not mode then
    local field = redis.call('HKEYS', KEYS[1])[1]
    return {'kind', string.match(field, ':%-?%d+$') and 'a mutex' or 'a hash that is no lock'}
  end
  if mode ~= 'read' then
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
      if is_writer(field) then writer = field end
    end
  end
end
local now = now_ms()
local blocked = false
for _, owner in ipairs(waiting(KEYS[4], KEYS[5], now)) do
  if owner == ARGV[1] then break end
  blocked = blocked or ARGV[4] == 'any' or is_writer(owner)
end
if blocked and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then blocked = false end
if writer or blocked then
  local ahead, recheck = false, 10000
  if ARGV[4] == 'join' then ahead, recheck = join(KEYS[4], KEYS[5], ARGV[1], now, ARGV[2]) end
  if not writer then recheck = math.min(recheck, 2000) end
  return {'wait', writer and left or -1, writer or '', '', ahead or redis.call('LLEN', KEYS[4]), recheck}
end
if ARGV[4] ~= 'any' then
  leave(KEYS[4], KEYS[5], ARGV[1])
  if redis.call('EXISTS', KEYS[4]) == 0 then redis.call('PUBLISH', ARGV[5], '1') end
end
describe(KEYS[3], redis.call('HLEN', KEYS[1]), ARGV[1], now, ARGV[3])
redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], 1)
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
if left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
