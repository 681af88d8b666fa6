-- keys: the keys of a script about many locks. Those of one slot are declared (KEYS). Of many slots of a cluster none can be:
-- then their names are the last arguments, followed by their number, and the server looks at each when it is used.
local keys = KEYS
if #KEYS == 0 then
  local count = tonumber(ARGV[#ARGV])
  keys = {unpack(ARGV, #ARGV - count, #ARGV - 1)}
end
-- What to do with an error for one lock: nil says that the script ends with it, otherwise it is the answer for this one.
local function failed(answer)
  if string.find(answer['err'], 'WRONGTYPE', 1, true) then return 0 end
  if #KEYS == 0 then return -1 end
end

