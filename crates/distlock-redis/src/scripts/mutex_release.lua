-- mutex_release: gives a Redisson mutex up, if the owner has it, and wakes who waits.
--
-- KEYS  1 lock  2 fair queue
-- ARGV  1 owner  2 channel  3 ms for which an ownerless record stays (0: none)
-- Gives 1 if the owner had it, else 0. The hash goes with its last field. Waiters of the plain lock listen on the
-- channel; the head of the fair queue, ours or Redisson's, on one of its own.
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
if ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[1], 'kept:' .. ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
redis.call('PUBLISH', ARGV[2], '0')
local head = redis.call('LINDEX', KEYS[2], '0')
if head then redis.call('PUBLISH', ARGV[2] .. ':' .. head, '0') end
return 1
