-- queue_prune: removes dead waiters from the head of a fair queue whose lock is free, and wakes the new head.
--
-- KEYS  1 lock  2 queue  3 deadlines  4 seen
-- ARGV  1 channel
-- Gives {waiters that are left, ms after which the head will be dead if it does not look again}. For the contender
-- without a place in line, who may not pass them.
local now = now_ms()
local head = prune(KEYS[2], KEYS[3], KEYS[4], now)
if not head then return {0, 0} end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('PUBLISH', ARGV[1] .. ':' .. head, '0') end
local due = redis.call('ZSCORE', KEYS[4], head) or redis.call('ZSCORE', KEYS[3], head)
return {redis.call('LLEN', KEYS[2]), math.max(due - now, 0) + 1}
