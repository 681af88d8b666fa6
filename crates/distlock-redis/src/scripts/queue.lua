-- queue: the line of Redisson's fair lock.
--
-- Three keys: the queue (list of owners), its deadlines (sorted set: owner -> ms after which Redisson thinks a
-- waiter dead), and ours beside them, seen (sorted set: owner -> ms after which one of *our* waiters that has not
-- looked again is dead). Redisson's deadlines are minutes away and add up along the queue, because each client that
-- is granted takes its own wait off everybody else's; so ours are written the same way, for its sake, and our own
-- waiters are judged by `seen` alone. All times are the server's.
local WAIT = 300000

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Takes one wait off the deadlines of all that are still in the queue.
local function shift(deadlines)
  for _, waiter in ipairs(redis.call('ZRANGE', deadlines, 0, -1)) do
    redis.call('ZINCRBY', deadlines, -WAIT, waiter)
  end
end

local function forget(deadlines, seen, waiter)
  redis.call('ZREM', deadlines, waiter)
  redis.call('ZREM', seen, waiter)
end

-- Removes the dead from the head of the queue; gives the head that is left, or false.
local function prune(queue, deadlines, seen, now)
  while true do
    local head = redis.call('LINDEX', queue, 0)
    if not head then return false end
    local ours = redis.call('ZSCORE', seen, head)
    local due = ours or redis.call('ZSCORE', deadlines, head)
    if not due then
      -- Without a deadline it would block the queue for ever.
      redis.call('ZADD', deadlines, string.format('%.0f', now + WAIT), head)
      return head
    end
    if tonumber(due) > now then return head end
    redis.call('LPOP', queue)
    forget(deadlines, seen, head)
    if ours then shift(deadlines) end
  end
end

