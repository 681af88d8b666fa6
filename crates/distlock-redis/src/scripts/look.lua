-- look: everything that is known of one lock, in one moment.
--
-- KEYS  1 lock  2 fair queue  3 record of the last token  4 people  5 leases of permits  6 our line
-- Gives {type, ms left, contents, record, queue, people, leases with ends, now in ms, ms left of each reader}.
local function look(lives)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local kind = redis.call('TYPE', KEYS[1])['ok']
  local contents, readers = {}, {}
  if kind == 'hash' then
    contents = redis.call('HGETALL', KEYS[1])
    for i = 1, #contents, 2 do
      local life = -2
      for level = 1, tonumber(contents[i + 1]) or 0 do
        life = math.max(life, redis.call('PTTL', lives .. contents[i] .. ':rwlock_timeout:' .. level))
      end
      readers[#readers + 1] = life
    end
  elseif kind == 'string' then
    contents = {redis.call('GET', KEYS[1])}
  end
  local leases = {}
  if redis.call('TYPE', KEYS[5])['ok'] == 'zset' then
    leases = redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')
  end
  local queue = redis.call('LRANGE', KEYS[2], 0, 999)
  for _, owner in ipairs(redis.call('LRANGE', KEYS[6], 0, 999)) do queue[#queue + 1] = owner end
  return {
    kind, redis.call('PTTL', KEYS[1]), contents, redis.call('GET', KEYS[3]) or '',
    queue, redis.call('HGETALL', KEYS[4]), leases, now, readers,
  }
end

