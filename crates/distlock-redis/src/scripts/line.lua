-- line: our own line for shared locks. Redisson has none for them, and does not see this one.
--
-- Two keys: the line (list of stored owners; a writer's ends in ':write') and seen (sorted set: owner -> ms after
-- which a waiter that has not looked again is dead). Whoever waits has a channel of its own.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Removes the dead; gives all who wait, in order.
local function waiting(line, seen, now)
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', now)) do
    redis.call('ZREM', seen, owner)
    redis.call('LREM', line, 1, owner)
  end
  return redis.call('LRANGE', line, 0, -1)
end

local function is_writer(owner) return string.sub(owner, -6) == ':write' end

local function leave(line, seen, owner)
  if redis.call('ZREM', seen, owner) == 1 then redis.call('LREM', line, 1, owner) end
end

-- Joins, or keeps the place; gives how many are ahead, and within how many ms to look again.
local function join(line, seen, owner, now)
  local ahead = redis.call('LPOS', line, owner)
  if not ahead then ahead = redis.call('RPUSH', line, owner) - 1 end
  local recheck = math.min(2000 + 100 * ahead, 10000)
  redis.call('ZADD', seen, string.format('%.0f', now + 3 * recheck), owner)
  redis.call('PEXPIRE', line, 86400000)
  redis.call('PEXPIRE', seen, 86400000)
  return ahead, recheck
end

-- Wakes the first in line: the writer, or all readers before the next writer, or as many as there are permits.
local function wake(line, seen, channel, most)
  for place, owner in ipairs(waiting(line, seen, now_ms())) do
    if place > most or (place > 1 and is_writer(owner)) then return end
    redis.call('PUBLISH', channel .. ':' .. owner, '0')
    if is_writer(owner) then return end
  end
end

