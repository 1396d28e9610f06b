-- Overrides: other terms for a project or an organisation.

local any_override = overrides > 0
    and call('EXISTS', unpack(KEYS, strings + kits + lists + 1, strings + kits + lists + overrides)) > 0

-- Puts the terms of an override in a charge, cut to what its algorithm can count; false if
-- that closes a bucket, whose sums need a rate.
local function override(ch, limit, window)
  if (ch.alg == LOG or ch.alg == LEASES) and limit > ENTRIES_MAX then limit = ENTRIES_MAX end
  if window < 0 then window = ch.window elseif not ch.aligned then ch.calendar = nil end
  if limit == 0 then
    ch.limit, ch.window, ch.closed = 0, window, ch.alg == TOKEN or ch.alg == LEAKY
    return not ch.closed
  end
  if ch.alg == TOKEN then
    local burst = ch.closed and limit or muldivmod(ch.extra, limit, ch.limit)
    ch.extra = burst < 1 and 1 or burst > LIMIT_MAX and LIMIT_MAX or burst
  elseif ch.alg ~= LEAKY then
    ch.extra = limit
  end
  ch.limit, ch.window, ch.closed = limit, window, false
  if ch.alg == TOKEN or ch.alg == LEAKY then
    ch.rm, ch.rr = span(ch.extra, window, limit)
    if ch.rm > WINDOW_MAX or ch.rm == WINDOW_MAX and ch.rr > 0 then -- years to refill
      ch.extra = muldivmod(limit, WINDOW_MAX, window)
      ch.rm, ch.rr = span(ch.extra, window, limit)
    end
    ch.cm, ch.cr = span(ch.cost, window, limit)
  end
  return true
end

local hashes = {}

-- The override in a hash: nothing, or limit (false: none), window (-1: none) and end (false: none);
-- false if it cannot be read. Numbers are what Application Kit's script takes for such; whoever
-- wrote them knew no bounds, so what is beyond one means it.
local function override_in(k)
  if k == 0 or not any_override then return nil end
  local hash = hashes[k]
  if hash == nil then
    local fields = look('HMGET', KEYS[k], 'max_requests', 'expiry', 'window_ms', 'expires_at')
    local limit, seconds, ends, window = fields[1], fields[2], fields[4], -1
    if limit then limit = string.find(limit, NUMBER) and tonumber(limit) end
    if seconds then seconds = string.find(seconds, NUMBER) and tonumber(seconds) end
    if ends then ends = whole(ends) end
    if limit == nil or seconds == nil or ends == nil then -- also if it is not a hash
      hash = false
    elseif not limit and not seconds then
      hash = 'none'
    else
      if limit then limit = limit < 0 and 0 or limit > LIMIT_MAX and LIMIT_MAX or limit - limit % 1 end
      if seconds then
        local millis = seconds * 1000 + 0.5
        -- Ours, to the millisecond; not if others have set another window since.
        local exact = fields[3] and whole(fields[3])
        if exact and seconds == (exact + (1000 - exact % 1000) % 1000) / 1000 then millis = exact end
        window = millis * 1000 > WINDOW_MAX and WINDOW_MAX or millis < 1 and 1000 or (millis - millis % 1) * 1000
      end
      if ends and now >= ends and not given then
        -- The key ends with what we put in it. If it lives on, others have set it anew.
        local left = call('PTTL', KEYS[k])
        ends = left >= 0 and left <= RENEWED and ends
      end
      hash = { limit, window, ends }
    end
    hashes[k] = hash
  end
  if hash == 'none' then return nil end
  if not hash then return false end
  if hash[3] and now >= hash[3] then return nil end
  return hash
end

-- The override that applies, the project's before the organisation's, and whose it is.
local function override_for(project, organisation)
  local hash = override_in(project)
  if hash ~= nil then return hash, 7, project end
  return override_in(organisation), 8, organisation
end
