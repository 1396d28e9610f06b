-- Packed values: the counters of a rule and subject in one string.
local WINDOWS_MAX = 8 -- of a quota and key, in which something counts

-- The i-th of the records in a value.
local function record(value, count, i)
  local tag, window, limit, burst = unpack_from(FIXED_PART, value, HEAD_BYTES + FIXED_BYTES * (i - 1) + 1)
  local a, c = unpack_from(MOVING_PART, value, moving_at(count) + MOVING_BYTES * (i - 1))
  local b = unpack_from(NUMBER_PART, value, b_at(count) + B_BYTES * (i - 1))
  if tag % 8 == SLIDING then return tag, window, a, window, c, b, limit, burst end
  return tag, window, a, b, c, limit, limit, burst
end

-- The window that is part of a counter's identity: one on the calendar is another one, and so is an aligned one.
local function window_of(ch)
  if ch.any_window then return 0 end
  if ch.aligned then return ch.window + 2 end
  return ch.calendar and ch.window + 1 or ch.window
end

-- Whether a counter would be in a window too many of its quota and key.
local function has_too_many_windows(ch)
  local value, of, windows = values[ch.k], window_of(ch), 0
  if ch.list or ch.kit or of == 0 or not value then return false end
  if ch.index and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) > now then return false end
  local count = byte(value, 2)
  for i = 1, count do
    local tag, window, a, b, c, e = record(value, count, i)
    if tag == ch.tag and window ~= of and window > 0 and expiry(ch.alg, a, b, c, e) > now then
      windows = windows + 1
    end
  end
  return windows >= WINDOWS_MAX
end

-- Finds the record of a counter in a value that can be read; says whether its numbers can be.
local function seek(ch, value)
  ch.a, ch.b, ch.c, ch.e, ch.index = 0, 0, 0, 0, nil
  local of = window_of(ch)
  local count = value and byte(value, 2) or 0
  for i = 1, count do
    local tag, window, a, b, c, e = record(value, count, i)
    if tag == ch.tag and (window == of or ch.all_windows) then
      ch.index, ch.a, ch.b, ch.c, ch.e = i, a, b, c, e
      return is_sound(ch.alg, a, b, c, e)
    end
  end
  return true
end

-- Finds the state of a charge; what to answer if it cannot be read. `ch.old` is what the
-- caller is told was there.
local function load(ch)
  if ch.alg == LOG or ch.alg == LEASES then
    ch.list = list_at(ch.k, ch.alg)
    return not ch.list and unreadable(ch.k) or nil
  elseif ch.alg == KIT then
    local kit = kit_at(ch.k)
    if not kit then return unreadable(ch.k) end
    ch.kit = kit
    return nil
  end
  local value = values[ch.k]
  ch.old = '\0'
  if value then
    local format, count, low, high = byte(value, 1, 4)
    if not high or not READABLE[format] or #value ~= value_bytes(count) + low + 256 * high then
      return unreadable(ch.k)
    end
    ch.old = pack('<BI2', 2, #value) .. value
  end
  return not seek(ch, value) and unreadable(ch.k) or nil
end

-- Writes a record into its key's value, or takes it out (without `ch.a`).
local function save(ch)
  local value, k, count = values[ch.k], ch.k, 0
  local fixed, bs, moving, n, ttl, is_there, of = {}, {}, {}, 0, 0, false, window_of(ch)
  local function keep(tag, window, a, b, c, e, limit, burst)
    n = n + 1
    fixed[n], moving[n] = pack(FIXED_PART, tag, window, limit, burst), pack(MOVING_PART, a, c)
    bs[n] = pack(NUMBER_PART, tag % 8 == SLIDING and e or b)
  end
  -- A bucket's fraction is told in the limit beside it.
  local limit, burst = ch.limit, ch.extra
  if ch.alg == TOKEN or ch.alg == LEAKY then limit = ch.e end
  if value then
    count = byte(value, 2)
    ttl = unpack_from(TTL, value, ttl_at(count))
  end
  for i = 1, count do
    local tag, window, a, b, c, e, was_limit, was_burst = record(value, count, i)
    if tag == ch.tag and (window == of or not ch.a and ch.all_windows) then
      is_there = true
      if ch.a then keep(tag, window, ch.a, ch.b, ch.c, ch.e, limit, burst) end
    -- Only what is added makes a value longer, so then what is over goes.
    elseif ch.index or not ch.a or expiry(tag % 8, a, b, c, e) > now then
      keep(tag, window, a, b, c, e, was_limit, was_burst)
    end
  end
  if ch.a and not is_there then keep(ch.tag, of, ch.a, ch.b, ch.c, ch.e, limit, burst) end
  if n == 0 then
    values[k] = false
    return mark(k, ANEW)
  end
  local how, last = IN_PLACE, ch.a and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) or 0
  if not (last <= ttl) then how, ttl = ANEW, ttl_until(last) end
  if count ~= n then how = ANEW end
  local rest = value and sub(value, value_bytes(count) + 1) or ''
  values[k] = pack(HEAD, FORMAT, n, #rest) .. concat(fixed) .. concat(bs) .. pack(TTL, ttl) .. concat(moving) .. rest
  mark(k, how)
end
