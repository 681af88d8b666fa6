end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local stamp = KEYS[#KEYS]
local born = tonumber(redis.call('GET', stamp) or '')
if not born then
  born = now
  redis.call('SET', stamp, string.format('%.0f', now))
end
return {acquire(), math.max(now - born, 0), time[1] * 1000000 + time[2]}
