-- renew_slot: renews permits whose leases have not ended.
--
-- KEYS  for each permit: free permits, leases (see keys)
-- ARGV  for each permit: permit, ttl in ms
-- Gives 1 or 0 for each, -1 for one to be asked for by itself.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local out = {}
for i = 1, #keys / 2 do
  local count, leases = keys[2 * i - 1], keys[2 * i]
  local permit, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local due = redis.pcall('ZSCORE', leases, permit)
  if type(due) == 'table' then
    local answer = failed(due)
    if not answer then return due end
    out[i] = answer
  elseif due and tonumber(due) > now then
    redis.call('ZADD', leases, string.format('%.0f', now + ttl), permit)
    for _, key in ipairs({count, leases}) do
      local left = redis.call('PTTL', key)
      if left >= 0 and left < 2 * ttl then redis.call('PEXPIRE', key, string.format('%.0f', 2 * ttl)) end
    end
    out[i] = 1
  else
    out[i] = 0
  end
end
return out
