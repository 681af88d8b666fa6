-- read_acquire: takes a share of a Redisson read/write lock, unless a writer has it.
--
-- KEYS  1 lock (hash: mode, owner -> count)  2 this reader's life (string)  3 people
-- ARGV  1 owner  2 ttl in ms  3 description
-- Gives 0 when held; or {'wait', ms left, holder}; or {'kind', what}. Asked again it is the same share.
local left = redis.call('PTTL', KEYS[1])
if left ~= -2 then
  local kind = redis.call('TYPE', KEYS[1])['ok']
  if kind ~= 'hash' then return {'kind', kind} end
  local mode = redis.call('HGET', KEYS[1], 'mode')
  if not mode then return {'kind', 'a mutex'} end
  if mode ~= 'read' then
    local holder = ''
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
      if string.sub(field, -6) == ':write' then holder = field end
    end
    return {'wait', left, holder}
  end
end
describe(KEYS[3], redis.call('HLEN', KEYS[1]), ARGV[1], now_ms(), ARGV[3])
redis.call('HSET', KEYS[1], 'mode', 'read', ARGV[1], 1)
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
if left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
