-- queue_prune: removes dead waiters from the head of a fair queue whose lock is free, and wakes the new head.
--
-- KEYS  1 lock  2 queue  3 deadlines  4 seen
-- ARGV  1 channel
-- Gives the number of waiters that are left. For the contender without a place in line, who may not pass them.
local head = prune(KEYS[2], KEYS[3], KEYS[4], now_ms())
if head and redis.call('EXISTS', KEYS[1]) == 0 then redis.call('PUBLISH', ARGV[1] .. ':' .. head, '0') end
return redis.call('LLEN', KEYS[2])
