-- The classic way: a fixed window whose numbers a project or its organisation can override.
--
-- KEYS     counter, override of the project, override of the organisation
-- ARGV     limit, window in seconds, cost
-- Reply    allowed, count, milliseconds until the window ends, limit in force

local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local override = redis.call('HMGET', KEYS[2], 'max_requests', 'expiry')
if not override[1] then override = redis.call('HMGET', KEYS[3], 'max_requests', 'expiry') end
if override[1] then
  limit = tonumber(override[1])
  window = tonumber(override[2] or window)
end

-- Before counting: a request that is denied must not use up what a smaller one could have.
local count = tonumber(redis.call('GET', KEYS[1]) or 0)
if count + cost > limit then return {0, count, redis.call('PTTL', KEYS[1]), limit} end

count = redis.call('INCRBY', KEYS[1], cost)
if count == cost then
  redis.call('PEXPIRE', KEYS[1], window * 1000)
  return {1, count, window * 1000, limit}
end
return {1, count, redis.call('PTTL', KEYS[1]), limit}
