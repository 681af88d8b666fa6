-- mint: the token of a new exclusive hold.
--
-- The token is the server's time in microseconds, or one more than the last token if that is not larger. It is kept
-- with the holder's description in one string, "<token> <description>", which lives for a day after the last
-- grant. `fence` is the counter of Redisson's fenced lock, or nil; `proposed` is given instead of the time if it is larger. Numbers are written with '%.0f': Lua's own
-- conversion keeps 14 digits only, and a token has 16. Numbers that are arguments are texts throughout, and the time
-- is put together as one, because turning one into the other is what takes longest here.
local call = redis.call
local function mint(record, about, fence, proposed)
  local time = call('TIME')
  local digits = time[1] .. string.sub('00000' .. time[2], -6)
  if proposed and (#proposed > #digits or #proposed == #digits and proposed > digits) then digits = proposed end
  if fence then
    local last = tonumber(call('GET', fence) or 0)
    if last and last >= tonumber(digits) then digits = string.format('%.0f', last + 1) end
    call('SET', fence, digits)
  end
  local old = call('SET', record, digits .. about, 'PX', '86400000', 'GET')
  -- Texts of as many digits compare as their numbers do.
  if old and (old >= digits or string.byte(old, #digits + 1) ~= 32) then
    local last = tonumber(string.match(old, '^%d+'))
    if last and last >= tonumber(digits) then
      digits = string.format('%.0f', last + 1)
      call('SET', record, digits .. about, 'PX', '86400000')
      if fence then call('SET', fence, digits) end
    end
  end
  return tonumber(digits)
end

