-- write_release: gives the writer's hold of a Redisson read/write lock up, or a place in our line.
--
-- KEYS  1 lock  2 line  3 seen
-- ARGV  1 owner:write  2 channel  3 ms for which an ownerless record stays (0: none)
-- Gives 1 if the owner had it, else 0. The message '1' wakes all waiters of a client: many readers may enter. It is
-- published also when the writer's own nested reads (Redisson's) stay behind, for then readers may enter too.
leave(KEYS[2], KEYS[3], ARGV[1])
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  -- A writer that leaves the line lets the readers behind it in, also while others read.
  if redis.call('HGET', KEYS[1], 'mode') ~= 'write' then wake(KEYS[2], KEYS[3], ARGV[2], 1000) end
  return 0
end
if ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[1], 'kept:' .. ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif redis.call('HLEN', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
redis.call('PUBLISH', ARGV[2], '1')
wake(KEYS[2], KEYS[3], ARGV[2], 1000)
return 1
