-- read_release: gives a share of a Redisson read/write lock up, or a place in our line.
--
-- KEYS  1 lock  2 this reader's life  3 people  4 line  5 seen
-- ARGV  1 owner  2 channel  3 ms for which an ownerless share stays (0: none)  4 what the readers' lives start with
-- Gives 1 if the owner had a share, else 0. The lock lives as long as the longest share that is left; when none is
-- left it goes, with the fields and the descriptions of readers that died, and waiters are woken.
leave(KEYS[4], KEYS[5], ARGV[1])
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode or redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  if not mode then wake(KEYS[4], KEYS[5], ARGV[2], 1000) end
  return 0
end
local alive = redis.call('DEL', KEYS[2])
redis.call('HDEL', KEYS[3], ARGV[1])
if ARGV[3] ~= '0' then
  redis.call('HSET', KEYS[1], 'kept:' .. ARGV[1], 1)
  redis.call('SET', ARGV[4] .. 'kept:' .. ARGV[1] .. ':rwlock_timeout:1', '1', 'PX', ARGV[3])
end
local longest = 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if fields[i] ~= 'mode' then
    for level = 1, tonumber(fields[i + 1]) or 0 do
      longest = math.max(longest, redis.call('PTTL', ARGV[4] .. fields[i] .. ':rwlock_timeout:' .. level))
    end
  end
end
if mode == 'read' then
  if longest > 0 then
    redis.call('PEXPIRE', KEYS[1], longest)
  else
    redis.call('DEL', KEYS[1], KEYS[3])
    redis.call('PUBLISH', ARGV[2], '0')
    wake(KEYS[4], KEYS[5], ARGV[2], 1000)
  end
end
return alive
