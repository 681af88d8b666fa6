-- fair_release: leaves a Redisson fair lock, as its holder or from any place in its queue.
--
-- KEYS  1 lock  2 queue  3 deadlines  4 seen
-- ARGV  1 owner  2 channel  3 ms for which an ownerless record stays (0: none)
-- Gives 1 if the owner held it, else 0. Whoever becomes the head of a free lock is woken: by a release, or because
-- the head before it left.
local place = redis.call('LPOS', KEYS[2], ARGV[1])
if place then
  for _, waiter in ipairs(redis.call('LRANGE', KEYS[2], place + 1, -1)) do
    if redis.call('ZSCORE', KEYS[3], waiter) then redis.call('ZINCRBY', KEYS[3], -WAIT, waiter) end
  end
  redis.call('LREM', KEYS[2], 1, ARGV[1])
  forget(KEYS[3], KEYS[4], ARGV[1])
end
local freed = redis.call('HDEL', KEYS[1], ARGV[1])
if freed == 1 and ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[1], 'kept:' .. ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
if freed == 1 or (place and redis.call('EXISTS', KEYS[1]) == 0) then
  local head = prune(KEYS[2], KEYS[3], KEYS[4], now_ms())
  if head then redis.call('PUBLISH', ARGV[2] .. ':' .. head, '0') end
  if freed == 1 or not head then redis.call('PUBLISH', ARGV[2], '0') end
end
return freed
