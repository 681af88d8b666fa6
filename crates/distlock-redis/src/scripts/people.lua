-- people: who holds a shared lock, for people who look.
--
-- A hash, owner -> "<ms> <description>", that lives for a day after the last change, or until the last holder releases.
-- Those who died leave their entry behind; when there are many more entries than holders, all are forgotten.
local function describe(people, holders, owner, now, about)
  if redis.call('HLEN', people) > 2 * holders + 32 then redis.call('DEL', people) end
  redis.call('HSET', people, owner, string.format('%.0f', now) .. about)
  redis.call('PEXPIRE', people, 86400000)
end

