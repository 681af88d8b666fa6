-- rights: which of the commands that the scripts use this user may not run.
--
-- KEYS  names of all forms that locks have, for a lock that nobody uses
-- ARGV  channels of all forms
-- Gives the names that are denied. Run once at the start, because a script that is denied a command half way has
-- done its first half. The first key is made a string for a moment, so that the others find the wrong type there,
-- and change nothing: the server looks at the rights first.
local denied = {}
local function may(...)
  local said = redis.pcall(...)
  if type(said) == 'table' and said['err'] then
    local why = said['err']
    -- Redis 6.2, 7.0, and newer ones (and Valkey) say it in three ways.
    if
      string.find(why, 'NOPERM', 1, true)
      or string.find(why, 'user executing the script', 1, true)
      or string.find(why, 'ACL failure', 1, true)
    then
      denied[#denied + 1] = table.concat({...}, ' ', 1, 2)
    end
  end
end
may('DEL', KEYS[1])
may('SET', KEYS[1], '1', 'PX', 1000, 'GET')
for _, key in ipairs(KEYS) do may('TYPE', key) end
may('EXISTS', KEYS[1])
may('PTTL', KEYS[1])
may('PEXPIRE', KEYS[1], 1000)
may('GET', KEYS[1])
may('TIME')
may('HSET', KEYS[1], 'f', '1')
may('HDEL', KEYS[1], 'f')
may('HEXISTS', KEYS[1], 'f')
may('HGET', KEYS[1], 'f')
may('HKEYS', KEYS[1])
may('HLEN', KEYS[1])
may('HGETALL', KEYS[1])
may('LINDEX', KEYS[1], 0)
may('LPOS', KEYS[1], 'x')
may('LPOP', KEYS[1])
may('LREM', KEYS[1], 1, 'x')
may('LLEN', KEYS[1])
may('LRANGE', KEYS[1], 0, 0)
may('RPUSH', KEYS[1], 'x')
may('ZADD', KEYS[1], 1, 'x')
may('ZREM', KEYS[1], 'x')
may('ZCARD', KEYS[1])
may('ZSCORE', KEYS[1], 'x')
may('ZRANGE', KEYS[1], 0, 0)
may('ZRANGEBYSCORE', KEYS[1], 0, 0)
may('ZINCRBY', KEYS[1], 1, 'x')
may('INCRBY', KEYS[1], 1)
may('INCR', KEYS[1])
may('DECR', KEYS[1])
for _, channel in ipairs(ARGV) do may('PUBLISH', channel, '0') end
may('DEL', KEYS[1])
return denied
