-- mint: the token of a new exclusive hold.
--
-- The token is the server's time in microseconds, or one more than the last token if that is not larger. It is kept
-- with the holder's description in one string, "<token> <description>", which lives for a day after the last
-- grant. `fence` is the counter of Redisson's fenced lock, or nil. Numbers are written with '%.0f': Lua's own
-- conversion keeps 14 digits only, and a token has 16. Numbers that are arguments are written as texts, because
-- turning one into the other is what takes longest here.
local function mint(record, about, fence)
  local time = redis.call('TIME')
  local token = time[1] * 1000000 + time[2]
  if fence then
    local last = tonumber(redis.call('GET', fence) or 0)
    if last and last >= token then token = last + 1 end
    redis.call('SET', fence, string.format('%.0f', token))
  end
  local digits = string.format('%.0f', token)
  local old = redis.call('SET', record, digits .. about, 'PX', '86400000', 'GET')
  -- Texts of as many digits compare as their numbers do.
  if old and (old >= digits or string.byte(old, #digits + 1) ~= 32) then
    local last = tonumber(string.match(old, '^%d+'))
    if last and last >= token then
      token = last + 1
      redis.call('SET', record, string.format('%.0f', token) .. about, 'PX', '86400000')
      if fence then redis.call('SET', fence, string.format('%.0f', token)) end
    end
  end
  return token
end

