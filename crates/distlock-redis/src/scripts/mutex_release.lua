-- mutex_release: gives a Redisson mutex up, if the owner has it, and wakes who waits.
--
-- KEYS  1 lock  2 fair queue
-- ARGV  1 owner  2 channel  3 ms for which an ownerless record stays (0: none)
-- Gives 1 if the owner had it, else 0. The hash goes with its last field. Waiters of the plain lock listen on the
-- channel; the head of the fair queue, ours or Redisson's, on one of its own.
local call, lock, channel = redis.call, KEYS[1], ARGV[2]
if call('HDEL', lock, ARGV[1]) == 0 then return 0 end
if ARGV[3] ~= '0' then
  call('HSET', lock, 'kept:' .. ARGV[1], 1)
  call('PEXPIRE', lock, ARGV[3])
end
call('PUBLISH', channel, '0')
local head = call('LINDEX', KEYS[2], '0')
if head then call('PUBLISH', channel .. ':' .. head, '0') end
return 1
