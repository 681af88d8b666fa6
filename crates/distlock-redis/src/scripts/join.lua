-- Joins, or keeps the place; gives how many are ahead, and within how many ms to look again.
local function join(line, seen, owner, now, ttl)
  local ahead = redis.call('LPOS', line, owner)
  if not ahead then ahead = redis.call('RPUSH', line, owner) - 1 end
  local recheck, place = pace(ahead, ttl)
  redis.call('ZADD', seen, string.format('%.0f', now + place), owner)
  redis.call('PEXPIRE', line, 86400000)
  redis.call('PEXPIRE', seen, 86400000)
  return ahead, recheck
end

