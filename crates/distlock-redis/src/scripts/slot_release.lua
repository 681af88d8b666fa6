-- slot_release: gives one permit of a Redisson expirable-permit semaphore back, or a place in our line.
--
-- KEYS  1 free permits  2 leases  3 people  4 line  5 seen
-- ARGV  1 permit  2 channel  3 ms for which an ownerless permit stays taken (0: none)  4 owner
--       5 '1' if others may share the name
-- Gives 1 if the permit was held and its lease had not ended, else 0. A count that we made (it has an expiry) goes
-- with the last permit, as the descriptions of those who died do: the name is free for any kind of lock again. The
-- count stays for a day where others may share the name: a Java client that was told "there are permits" when it came
-- does not make them anew, and would wait for ever.
leave(KEYS[4], KEYS[5], ARGV[4])
local due = redis.call('ZSCORE', KEYS[2], ARGV[1])
if not due then
  local free = tonumber(redis.call('GET', KEYS[1]) or 0)
  if free and free > 0 then wake(KEYS[4], KEYS[5], ARGV[2], free) end
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[4])
if ARGV[3] ~= '0' and tonumber(due) > now then
  local kept = string.sub(redis.sha1hex('kept:' .. ARGV[1]), 1, 16)
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[3]), kept)
else
  local free = redis.call('INCR', KEYS[1])
  if free > 0 then
    redis.call('PUBLISH', ARGV[2], free)
    wake(KEYS[4], KEYS[5], ARGV[2], free)
  end
  if redis.call('ZCARD', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[3])
    if ARGV[5] == '0' and redis.call('PTTL', KEYS[1]) >= 0 then redis.call('DEL', KEYS[1]) end
  end
end
return tonumber(due) > now and 1 or 0
