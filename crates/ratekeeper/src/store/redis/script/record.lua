-- Packed values: the counters of a rule and subject in one string.
local WINDOWS_MAX = 8 -- of a quota and key, in which something counts, under all algorithms together
local COUNTERS_MAX = 255 -- of a rule and key, in which something counts

-- What seldom changes of the i-th of the records in a value: tag, window, limit, burst.
local function fixed_part(value, i)
  return unpack_from(FIXED_PART, value, HEAD_BYTES + FIXED_BYTES * (i - 1) + 1)
end

-- The i-th of the records in a value.
local function record(value, count, i)
  local tag, window, limit, burst = fixed_part(value, i)
  local a, c = unpack_from(MOVING_PART, value, moving_at(count) + MOVING_BYTES * (i - 1))
  local b = unpack_from(NUMBER_PART, value, b_at(count) + B_BYTES * (i - 1))
  if tag % 8 == SLIDING then return tag, window, a, window, c, b, limit, burst end
  return tag, window, a, b, c, limit, limit, burst
end

-- The names in a value, each with its length before it. What cannot be read counts nothing: it is left out.
local function names_in(value, count)
  local names, at = {}, value_bytes(count) + 1
  for i = 1, count do
    local length = byte(value, at) or 0
    names[i] = at + length <= #value and sub(value, at, at + length) or '\0'
    at = at + length + 1
  end
  return names
end

-- The window that is part of a counter's identity: one on the calendar is another one, and so is an aligned one.
local function window_of(ch)
  if ch.any_window then return 0 end
  if ch.aligned then return ch.window + 2 end
  return ch.calendar and ch.window + 1 or ch.window
end

-- Whether a counter would be in a window too many of its quota and key, under whichever algorithm.
local function has_too_many_windows(ch)
  local value, of, windows = values[ch.k], window_of(ch), 0
  if ch.list or ch.kit or of == 0 or not value then return false end
  if ch.index and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) > now then return false end
  local count = byte(value, 2)
  for i = 1, count do
    local tag, window = fixed_part(value, i)
    local is_own = tag == ch.tag and window == of
    if tag - tag % 8 == ch.tag - ch.tag % 8 and not is_own and window > 0 then
      local _, _, a, b, c, e = record(value, count, i)
      if expiry(tag % 8, a, b, c, e) > now then windows = windows + 1 end
    end
  end
  return windows >= WINDOWS_MAX
end

-- Whether the value of a counter would have more of them than a byte can tell with those of all charges.
local function has_too_many_counters(ch, charges)
  local value = not ch.list and not ch.kit and values[ch.k]
  if not value or byte(value, 2) + #charges <= COUNTERS_MAX then return false end
  local count, needed = byte(value, 2), 0
  for i = 1, count do
    local tag, _, a, b, c, e = record(value, count, i)
    if expiry(tag % 8, a, b, c, e) > now then needed = needed + 1 end
  end
  for i = 1, #charges do
    local other = charges[i]
    local is_live = other.index and expiry(other.alg, other.a, other.b, other.c, other.e) > now
    if other.k == ch.k and not is_live then needed = needed + 1 end
  end
  return needed > COUNTERS_MAX
end

-- Finds the record of a counter in a value that can be read; says whether its numbers can be.
local function seek(ch, value)
  ch.a, ch.b, ch.c, ch.e, ch.index = 0, 0, 0, 0, nil
  local of = window_of(ch)
  local count = value and byte(value, 2) or 0
  -- It is where its check has it, as a rule: of many quotas none has to look for the place of the others.
  local i = ch.size and ch.size > 0 and ch.place < count and ch.place + 1 or 1
  for _ = 1, count do
    local tag, window = fixed_part(value, i)
    if tag == ch.tag and (window == of or ch.all_windows) then
      local _, _, a, b, c, e = record(value, count, i)
      ch.index, ch.a, ch.b, ch.c, ch.e = i, a, b, c, e
      return is_sound(ch.alg, a, b, c, e)
    end
    i = i < count and i + 1 or 1
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

-- The name of the i-th record, with its length before it, in a value that has names.
local function name_in(value, count, i)
  local at = value_bytes(count) + 1
  for _ = 2, i do
    at = at + (byte(value, at) or 0) + 1
  end
  return sub(value, at, at + (byte(value, at) or 0))
end

-- The values that a check has made record by record: nothing in them is over.
local made = {}

-- A value with the record of a charge in it, if that is where it belongs already, or is the next of a value that its
-- check is making; nothing if others have to move or to go.
local function with_record(ch, value, limit, ttl)
  local count, of, i = byte(value, 2), window_of(ch), ch.index
  local place = ch.size and ch.size > 0 and ch.place + 1
  local names = value_bytes(count) < #value
  if byte(value) ~= FORMAT or not names and (ch.name or '\0') ~= '\0' then return nil end
  local fixed, b = pack(FIXED_PART, ch.tag, of, limit, ch.extra), pack(NUMBER_PART, ch.alg == SLIDING and ch.e or ch.b)
  local moving = pack(MOVING_PART, ch.a, ch.c)
  if made[ch.k] == value and place == count + 1 and count < COUNTERS_MAX then
    local bs, ttl_from, moving_from = b_at(count), ttl_at(count), moving_at(count)
    local tail = sub(value, value_bytes(count) + 1) .. (names and (ch.name or '\0') or '')
    local head = pack(HEAD, FORMAT, count + 1, #tail) .. sub(value, HEAD_BYTES + 1, bs - 1) .. fixed
    return head .. sub(value, bs, ttl_from - 1) .. b .. pack(TTL, ttl)
        .. sub(value, moving_from, value_bytes(count)) .. moving .. tail
  end
  if not i or i > count or place and (place ~= i or count > ch.size and i == 1) then return nil end
  local tag, window = fixed_part(value, i)
  if tag ~= ch.tag or window ~= of or names and ch.name and name_in(value, count, i) ~= ch.name then return nil end
  local fixed_from, b_from = HEAD_BYTES + FIXED_BYTES * (i - 1), b_at(count) - 1 + B_BYTES * (i - 1)
  local ttl_from, moving_from = ttl_at(count) - 1, moving_at(count) - 1 + MOVING_BYTES * (i - 1)
  return sub(value, 1, fixed_from) .. fixed .. sub(value, fixed_from + FIXED_BYTES + 1, b_from) .. b
      .. sub(value, b_from + B_BYTES + 1, ttl_from) .. pack(TTL, ttl)
      .. sub(value, moving_at(count), moving_from) .. moving
      .. sub(value, moving_from + MOVING_BYTES + 1)
end

-- Writes a record into its key's value, or takes it out (without `ch.a`). A check puts its own records first, in
-- its order, and drops what is over: from the next one on, the value is as the ordinary ways expect it.
local function save(ch)
  local value, k, count = values[ch.k], ch.k, 0
  local fixed, bs, moving, names, n, ttl, of = {}, {}, {}, {}, 0, 0, window_of(ch)
  local place = ch.size and ch.size > 0 and ch.place + 1
  local function keep(at, name, tag, window, a, b, c, e, limit, burst)
    n = n + 1
    if at > n then at = n end
    table.insert(names, at, name)
    table.insert(fixed, at, pack(FIXED_PART, tag, window, limit, burst))
    table.insert(moving, at, pack(MOVING_PART, a, c))
    table.insert(bs, at, pack(NUMBER_PART, tag % 8 == SLIDING and e or b))
  end
  -- A bucket's fraction is told in the limit beside it.
  local limit, burst = ch.limit, ch.extra
  if ch.alg == TOKEN or ch.alg == LEAKY then limit = ch.e end
  if value then
    count = byte(value, 2)
    ttl = unpack_from(TTL, value, ttl_at(count))
  end
  local how, last = IN_PLACE, ch.a and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) or 0
  if not (last <= ttl) then how, ttl = ANEW, ttl_until(last) end
  local changed = value and ch.a and with_record(ch, value, limit, ttl)
  if changed then
    if #changed ~= #value then how, made[k] = ANEW, changed end
    values[k] = changed
    return mark(k, how)
  end
  local known, name = value and names_in(value, count), ch.name
  -- What is added makes a value longer, so then what is over goes; and from a value that is longer than its rule.
  local keeps_all = ch.index and not (place and count > ch.size) or not ch.a
  local own
  for i = 1, count do
    local tag, window, a, b, c, e, was_limit, was_burst = record(value, count, i)
    if tag == ch.tag and (window == of or not ch.a and ch.all_windows) then
      own, name = own or n + 1, name or known[i]
    elseif keeps_all or expiry(tag % 8, a, b, c, e) > now then
      keep(n + 1, known[i], tag, window, a, b, c, e, was_limit, was_burst)
    end
  end
  if ch.a then keep(place or own or n + 1, name or '\0', ch.tag, of, ch.a, ch.b, ch.c, ch.e, limit, burst) end
  if n > COUNTERS_MAX then return end -- no check does that: what is settled beyond its estimate could
  if n == 0 then
    values[k] = false
    return mark(k, ANEW)
  end
  local tail = concat(names)
  if #tail == n then tail = '' end -- no quota has a name
  values[k] = pack(HEAD, FORMAT, n, #tail) .. concat(fixed) .. concat(bs) .. pack(TTL, ttl) .. concat(moving) .. tail
  if not value or #values[k] ~= #value then how = ANEW end
  made[k] = not value and values[k] or nil
  mark(k, how)
end
