-- string_release: deletes a plain lock if it has our value, and wakes who waits on our own channel.
--
-- KEYS  1 lock
-- ARGV  1 value  2 channel  3 ms for which an ownerless record stays (0: none)
-- Gives 1 if it had our value, else 0.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[1], 'kept:' .. ARGV[1], 'PX', ARGV[3])
else
  redis.call('DEL', KEYS[1])
end
redis.call('PUBLISH', ARGV[2], '0')
return 1
