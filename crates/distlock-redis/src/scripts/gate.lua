-- gate: writes a string unless a larger token has written before.
--
-- KEYS  1 data  2 the largest token that was seen
-- ARGV  1 token  2 value
-- Gives nil when written, or the larger token. Tokens are compared as decimal texts, by length and then by digits,
-- because Lua's numbers are exact to 53 bits only.
local seen = redis.call('GET', KEYS[2])
if seen and (#seen > #ARGV[1] or (#seen == #ARGV[1] and seen > ARGV[1])) then return seen end
redis.call('SET', KEYS[2], ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return false
