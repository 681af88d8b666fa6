-- fair_acquire: takes a Redisson fair lock in turn, or joins its queue.
--
-- KEYS  1 lock  2 queue  3 deadlines  4 seen  5 record of the last token  [6 fenced counter]
-- ARGV  1 owner  2 ttl in ms  3 description  4 '1' to join the queue
-- Gives the token; or {'wait', ms left, holder, record, ahead, recheck ms}; or {'kind', what}.
-- A waiter must ask again within the recheck: that is what keeps its place.
local now = now_ms()
local head = prune(KEYS[2], KEYS[3], KEYS[4], now)
local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  if not head or head == ARGV[1] then
    local token = mint(KEYS[5], ARGV[3], KEYS[6])
    if head then
      redis.call('LPOP', KEYS[2])
      forget(KEYS[3], KEYS[4], head)
      shift(KEYS[3])
    end
    redis.call('HSET', KEYS[1], ARGV[1], '1')
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return token
  end
else
  local kind = redis.call('TYPE', KEYS[1])['ok']
  if kind ~= 'hash' then return {'kind', kind} end
  if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then return {'kind', 'a read/write lock'} end
end
local record = redis.call('GET', KEYS[5])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if record and string.find(record, ARGV[1], 1, true) then return tonumber(string.match(record, '^%d+')) end
  return mint(KEYS[5], ARGV[3], KEYS[6])
end
local ahead = redis.call('LPOS', KEYS[2], ARGV[1])
local recheck = 10000
if ARGV[4] == '1' then
  if not ahead then
    local tail = redis.call('LINDEX', KEYS[2], -1)
    local base = tail and redis.call('ZSCORE', KEYS[3], tail) or now + math.max(left, 0)
    ahead = redis.call('RPUSH', KEYS[2], ARGV[1]) - 1
    redis.call('ZADD', KEYS[3], string.format('%.0f', base + WAIT), ARGV[1])
  elseif tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or 0) < now + WAIT / 2 then
    redis.call('ZADD', KEYS[3], string.format('%.0f', now + WAIT), ARGV[1])
  end
  local place
  recheck, place = pace(ahead, ARGV[2])
  redis.call('ZADD', KEYS[4], string.format('%.0f', now + place), ARGV[1])
  redis.call('PEXPIRE', KEYS[4], 86400000)
end
if left == -2 then
  -- Free, but another one's turn: if that one is dead, the queue moves on when its time is over.
  local due = redis.call('ZSCORE', KEYS[4], head) or redis.call('ZSCORE', KEYS[3], head)
  if due then recheck = math.min(recheck, math.max(due - now, 0) + 1) end
end
return {'wait', left, redis.call('HKEYS', KEYS[1])[1] or '', record or '', ahead or redis.call('LLEN', KEYS[2]), recheck}
