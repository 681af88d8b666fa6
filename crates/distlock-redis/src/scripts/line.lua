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

-- Wakes the first in line: the writer, or all readers before the next writer, or as many as there are permits.
local function wake(line, seen, channel, most)
  for place, owner in ipairs(waiting(line, seen, now_ms())) do
    if place > most or (place > 1 and is_writer(owner)) then return end
    redis.call('PUBLISH', channel .. ':' .. owner, '0')
    if is_writer(owner) then return end
  end
end

