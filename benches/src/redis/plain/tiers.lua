-- The classic way with several quotas: a GCRA and a key for each, all or nothing.
--
-- KEYS     counters
-- ARGV     cost, then limit and window in microseconds of each
-- Reply    allowed, then remaining, microseconds until a retry and until full of each, as found

local cost = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local allowed, new_full_at, reply = 1, {}, {1}
for i, key in ipairs(KEYS) do
  local limit, window = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local interval = window / limit
  local full_at = math.max(now, tonumber(redis.call('GET', key) or 0))
  new_full_at[i] = full_at + cost * interval
  local wait = math.max(0, math.ceil(new_full_at[i] - window - now))
  if wait > 0 then allowed = 0 end
  reply[3 * i - 1] = math.floor((window - (full_at - now)) / interval)
  reply[3 * i] = wait
  reply[3 * i + 1] = math.ceil(full_at - now)
end

reply[1] = allowed
if allowed == 1 then
  for i, key in ipairs(KEYS) do
    local owed = new_full_at[i] - now
    redis.call('SET', key, string.format('%.0f', new_full_at[i]), 'PX', math.ceil(owed / 1000))
  end
end
return reply
