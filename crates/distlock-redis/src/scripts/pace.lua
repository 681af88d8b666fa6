-- pace: how often a waiter looks again, and for how long its place outlives its last look.
--
-- Whoever waits far back looks less often. A dead waiter is in the way until its place is over: for its own lease at
-- the longest, and a second at the least.
local function pace(ahead, ttl)
  local recheck = math.floor(math.min(2000 + 100 * ahead, 10000, math.max(tonumber(ttl), 1000) / 3))
  return recheck, 3 * recheck
end

