-- Packed values: the counters of a rule and subject in one string.

-- The i-th of the records in a value.
local function record(value, count, i)
  local tag, e, b = unpack_from(FIXED_PART, value, HEAD_BYTES + FIXED_BYTES * (i - 1) + 1)
  local a, c = unpack_from(MOVING_PART, value, moving_at(count) + MOVING_BYTES * (i - 1))
  return tag, a, b, c, e
end

-- Finds the record of a counter in a value that can be read; says whether its numbers can be.
local function seek(ch, value)
  ch.a, ch.b, ch.c, ch.e, ch.index = 0, 0, 0, 0, nil
  local count = value and byte(value, 2) or 0
  for i = 1, count do
    local tag, a, b, c, e = record(value, count, i)
    if tag == ch.tag then
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
    local format, count = byte(value, 1, 2)
    if not READABLE[format] or #value ~= value_bytes(count or 0) then return unreadable(ch.k) end
    ch.old = pack('<BI2', 2, #value) .. value
  end
  return not seek(ch, value) and unreadable(ch.k) or nil
end

-- Writes a record into its key's value, or takes it out (without `ch.a`).
local function save(ch)
  local value, k, count = values[ch.k], ch.k, 0
  local fixed, moving, n, ttl, is_there = {}, {}, 0, 0, false
  local function keep(tag, a, b, c, e)
    n = n + 1
    fixed[n], moving[n] = pack(FIXED_PART, tag, e, b), pack(MOVING_PART, a, c)
  end
  if value then
    count = byte(value, 2)
    ttl = unpack_from(TTL, value, ttl_at(count))
  end
  for i = 1, count do
    local tag, a, b, c, e = record(value, count, i)
    if tag == ch.tag then
      is_there = true
      if ch.a then keep(tag, ch.a, ch.b, ch.c, ch.e) end
    -- Only what is added makes a value longer, so then what is over goes.
    elseif ch.index or not ch.a or expiry(tag % 8, a, b, c, e) > now then
      keep(tag, a, b, c, e)
    end
  end
  if ch.a and not is_there then keep(ch.tag, ch.a, ch.b, ch.c, ch.e) end
  if n == 0 then
    values[k] = false
    return mark(k, ANEW)
  end
  local how, last = IN_PLACE, ch.a and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) or 0
  if not (last <= ttl) then how, ttl = ANEW, ttl_until(last) end
  if count ~= n then how = ANEW end
  values[k] = pack(HEAD, FORMAT, n, 0) .. concat(fixed) .. pack(TTL, ttl) .. concat(moving)
  mark(k, how)
end
