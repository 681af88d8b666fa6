-- break: takes a lock away from whoever holds it.
--
-- KEYS  1 lock  2 fair queue  3 record of the last token  4 people  5 leases of permits  6 our line  7 notes on broken holds
--       8 seen
-- ARGV  1 what the readers' lives start with  2 the only token to break, or ''  3 grace in ms  4 reason
--       5 'redisson' or 'string'  6 mutex channel  7 read/write channel  8 permit channel  9 string layout's channel
-- Gives what look saw before; or {'token', have}; or {'kind', what}. With a grace an ownerless record stays. The
-- holders' clients are told on their own channels, and find the reason in the notes. Data of others is never deleted.
local seen = look(ARGV[1])
local kind, contents, record = seen[1], seen[3], seen[4]
local grace = tonumber(ARGV[3])
local owners, mode = {}, nil
if kind == 'hash' then
  for i = 1, #contents, 2 do
    local field = contents[i]
    if field == 'mode' then
      mode = contents[i + 1]
    elseif string.match(field, '^.+:%-?%d+$') or string.match(field, '^.+:%-?%d+:write$') then
      owners[#owners + 1] = field
    else
      return {'kind', 'a hash that is no lock'}
    end
  end
elseif kind == 'string' and ARGV[5] == 'string' then
  if seen[2] == -1 then return {'kind', 'a string without an expiry: data, or a lock for ever'} end
  owners[1] = contents[1]
elseif kind == 'string' and #seen[7] > 0 then
  for i = 1, #seen[6], 2 do owners[#owners + 1] = seen[6][i] end
elseif kind ~= 'none' then
  if kind == 'string' and string.match(contents[1], '^%-?%d+$') then return seen end
  return {'kind', kind}
end
if ARGV[2] ~= '' then
  local have = ''
  for _, owner in ipairs(owners) do
    local name = string.gsub(owner, ':write$', '')
    if string.find(record, '"' .. name .. '"', 1, true) then have = string.match(record, '^%d+') end
  end
  if have ~= ARGV[2] then return {'token', have} end
end
for _, owner in ipairs(owners) do
  redis.call('HSET', KEYS[7], owner, ARGV[4])
  redis.call('PEXPIRE', KEYS[7], 86400000)
  local client = string.match(owner, '^(.+):%-?%d+')
  if client then redis.call('publish', 'distlock_client:' .. client, KEYS[1]) end
end
if kind == 'hash' then
  for i = 1, #contents, 2 do
    for level = 1, tonumber(contents[i + 1]) or 0 do
      redis.call('DEL', ARGV[1] .. contents[i] .. ':rwlock_timeout:' .. level)
    end
  end
  redis.call('DEL', KEYS[1])
  if grace > 0 then
    if mode then
      redis.call('HSET', KEYS[1], 'mode', 'write', 'broken:' .. owners[1] .. (mode == 'read' and ':write' or ''), 1)
    else
      redis.call('HSET', KEYS[1], 'broken:' .. owners[1], 1)
    end
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  end
  if mode then
    redis.call('PUBLISH', ARGV[7], '1')
    wake(KEYS[6], KEYS[8], ARGV[7], 1000)
  else
    redis.call('PUBLISH', ARGV[6], '0')
    local head = redis.call('LINDEX', KEYS[2], 0)
    if head then redis.call('PUBLISH', ARGV[6] .. ':' .. head, '0') end
  end
elseif kind == 'string' and ARGV[5] == 'string' then
  if grace > 0 then
    redis.call('SET', KEYS[1], 'broken:' .. contents[1], 'PX', ARGV[3])
  else
    redis.call('DEL', KEYS[1])
  end
  redis.call('PUBLISH', ARGV[9], '0')
elseif kind == 'string' then
  for i = 1, #seen[7], 2 do
    redis.call('ZREM', KEYS[5], seen[7][i])
    if grace > 0 then
      local kept = string.sub(redis.sha1hex('broken:' .. seen[7][i]), 1, 16)
      redis.call('ZADD', KEYS[5], string.format('%.0f', seen[8] + grace), kept)
    else
      redis.call('INCR', KEYS[1])
    end
  end
  redis.call('DEL', KEYS[4])
  local free = tonumber(redis.call('GET', KEYS[1]))
  if free > 0 then
    redis.call('PUBLISH', ARGV[8], free)
    wake(KEYS[6], KEYS[8], ARGV[8], free)
  end
end
return seen
