-- slot_acquire: takes one permit of a Redisson expirable-permit semaphore.
--
-- KEYS  1 free permits (string)  2 leases (sorted set: 16-byte permit -> ms of its end)  3 people  4 line  5 seen
-- ARGV  1 permit  2 ttl in ms  3 description  4 number of permits  5 channel  6 owner
--       7 'any', 'try' (in order, but does not join) or 'join'
-- Gives 0 when held; or {'wait', ms until the next lease ends, '', '', ahead, recheck ms}; or {'kind', what}. The
-- first use sets the number of permits; what we set goes with the last permit. Asked again it is the same permit.
local free = redis.call('EXISTS', KEYS[1]) == 1
if free then
  local kind = redis.call('TYPE', KEYS[1])['ok']
  if kind ~= 'string' then return {'kind', kind == 'hash' and 'another kind of lock' or kind} end
  free = redis.call('GET', KEYS[1])
  if not string.match(free, '^%-?%d+$') then return {'kind', 'string'} end
end
local now = now_ms()
local life = math.max(86400000, 2 * ARGV[2])
local ended = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now)
for _, permit in ipairs(ended) do redis.call('ZREM', KEYS[2], permit) end
local held = redis.call('ZCARD', KEYS[2])
if not free then
  -- The first use, or the count was deleted: whoever still has a lease keeps it.
  free = ARGV[4] - held
  redis.call('SET', KEYS[1], string.format('%.0f', free), 'PX', string.format('%.0f', life))
elseif #ended > 0 then
  free = redis.call('INCRBY', KEYS[1], #ended)
  if free > 0 then redis.call('PUBLISH', ARGV[5], free) end
end
if free + held ~= tonumber(ARGV[4]) then return {'kind', 'a semaphore of ' .. (free + held) .. ' permits'} end
local mine = redis.call('ZSCORE', KEYS[2], ARGV[1])
free = tonumber(free)
local ahead = 0
for _, owner in ipairs(waiting(KEYS[4], KEYS[5], now)) do
  if owner == ARGV[6] then break end
  ahead = ahead + 1
end
local turn = free > ahead and (ahead == 0 or ARGV[7] ~= 'any')
if not mine and not turn then
  local recheck = 10000
  if ARGV[7] == 'join' then ahead, recheck = join(KEYS[4], KEYS[5], ARGV[6], now, ARGV[2]) end
  local next = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  local left = next[2] and math.max(next[2] - now, 0) or -1
  if free > 0 then
    left = -1
    recheck = math.min(recheck, 2000)
  end
  return {'wait', left, '', '', ahead, recheck}
end
if ARGV[7] ~= 'any' then leave(KEYS[4], KEYS[5], ARGV[6]) end
describe(KEYS[3], held, ARGV[6], now, ARGV[3])
if not mine then redis.call('DECR', KEYS[1]) end
redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), ARGV[1])
if redis.call('PTTL', KEYS[1]) >= 0 then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', life))
end
return 0
