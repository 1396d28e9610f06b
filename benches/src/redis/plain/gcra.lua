-- The classic way: one GCRA in one script, its state as text.
--
-- KEYS[1]  counter
-- ARGV     limit, window in microseconds, cost
-- Reply    allowed, remaining, microseconds until a retry, microseconds until full

local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local interval = window / limit

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local full_at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0))

local new_full_at = full_at + cost * interval
local allowed_at = new_full_at - window
if now < allowed_at then
  return {0, math.floor((window - (full_at - now)) / interval), math.ceil(allowed_at - now), full_at - now}
end
-- As text by hand: Lua would round it to 14 digits.
local owed = new_full_at - now
redis.call('SET', KEYS[1], string.format('%.0f', new_full_at), 'PX', math.ceil(owed / 1000))
return {1, math.floor((window - owed) / interval), 0, math.ceil(owed)}
