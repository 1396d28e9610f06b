-- The ordinary way, for other common checks: counters in packed strings, in order and well, and
-- those of Application Kit.

local state = {}            -- what a value is packed of
local pending = 0           -- what is written if nothing denies: a value, or the cost of a kit
local pending_keys, pending_values, pending_marks, pending_costs = {}, {}, {}, {}

-- The terms of a charge after its override, which is told; nothing if another way must see to it.
local function ordinary_terms(charge, pos)
  local limit, window, cm, cr, rm, rr = charge[7], charge[8], charge[9], charge[10], charge[11], charge[12]
  if charge[2] > 1 and any_override then
    local project, organisation = unpack_from('<I2I2', blob, pos)
    local terms, level = override_for(project, organisation)
    if terms == false then return nil end
    if terms then
      local ch = { alg = charge[1], cost = charge[6], limit = limit, window = window, extra = charge[13],
                   cm = cm, cr = cr, rm = rm, rr = rr }
      if not override(ch, terms[1] or limit, terms[2]) then return nil end
      o = o + 1
      out[o] = pack('<Bdd', level, ch.limit, terms[2])
      return ch.limit, ch.window, ch.cm, ch.cr, ch.rm, ch.rr, ch.extra
    end
  end
  return limit, window, cm, cr, rm, rr, charge[13]
end

-- Whether a counter of Application Kit has room; nothing if another way must see to it.
local function ordinary_kit(k, cost, limit, window)
  local kit = kit_at(k)
  if not kit or kit.left < 0 then return nil end
  o = o + 1
  out[o] = pack('<Bdd', 4, kit.count, kit.left)
  if kit.count + cost > limit then return false end
  pending = pending + 1
  pending_keys[pending], pending_values[pending], pending_costs[pending] = kit, window, cost
  return true
end

-- Tells the value at a key, which ends with the names of its quotas; false if another way must see to it.
local function ordinary_value(value, size, tail)
  if not value then
    o = o + 1
    out[o] = '\0'
    return true
  end
  local format, count, low, high = byte(value, 1, 4)
  if #value ~= value_bytes(size) + #tail or format ~= FORMAT or count ~= size or low + 256 * high ~= #tail then
    return false
  end
  out[o + 1], out[o + 2] = pack('<BI2', 2, #value), value
  o = o + 2
  return true
end

-- Notes the value that `state` makes, which lasts until `last`.
local function ordinary_write(k, value, size, last, tail)
  local how, ttl = IN_PLACE, value and unpack_from(TTL, value, ttl_at(size)) or 0
  if not value or not (last <= ttl) then how, ttl = ANEW, ttl_until(last) end
  state[1], state[2], state[3], state[4 + 5 * size] = FORMAT, size, #tail, ttl
  local format = size == 1 and '<BBI2I4dI4I4dddI4'
      or '<BBI2' .. string.rep('I4dI4I4', size) .. string.rep('d', size + 1) .. string.rep('dI4', size)
  pending = pending + 1
  pending_keys[pending], pending_marks[pending], pending_costs[pending] = k, how, nil
  pending_values[pending] = pack(format, unpack(state, 1, 4 + 7 * size)) .. tail
end

-- Whether a counter of a value has room, and until when it lasts; nothing if another way must see to it.
local function ordinary_packed(charge, value, limit, burst, window, cm, cr, rm, rr)
  local alg, place, size, tag = charge[1], charge[3], charge[4], charge[5]
  local a, b, c, e, was_limit, was_burst = 0, 0, 0, 0, limit, burst
  if value then
    local known, of
    known, of, was_limit, was_burst = unpack_from(FIXED_PART, value, HEAD_BYTES + FIXED_BYTES * place + 1)
    if known ~= tag or of ~= window then return nil end
    b = unpack_from(NUMBER_PART, value, b_at(size) + B_BYTES * place)
    a, c = unpack_from(MOVING_PART, value, moving_at(size) + MOVING_BYTES * place)
    if alg == SLIDING then b, e = window, b else e = was_limit end
    if not is_sound(alg, a, b, c, e) then return nil end
  end
  local verdict, na, nb, nc, ne = step(alg, a, b, c, e, now, charge[6], limit, window, cm, cr, rm, rr)
  if verdict == 2 then return nil end
  if verdict == 1 then na, nb, nc, ne, limit, burst = a, b, c, e, was_limit, was_burst end
  local fixed, moving = 4 + 4 * place, 5 + 5 * size + 2 * place
  state[fixed], state[fixed + 1], state[fixed + 2], state[fixed + 3] = tag, window, limit, burst
  state[4 + 4 * size + place] = alg == SLIDING and ne or nb
  state[moving], state[moving + 1] = na, nc
  return verdict == 0, expiry(alg, na, nb, nc, ne)
end

local function ordinary_charged()
  for i = 1, pending do
    local key = pending_keys[i]
    if pending_costs[i] then
      charge_kit(key, pending_values[i], pending_costs[i])
    else
      values[key] = pending_values[i]
      mark(key, pending_marks[i])
    end
  end
end

-- Judges a check. Returns where the next item begins, or nothing if another way must see to it.
local function ordinary(plan, pos)
  charges_in(plan)
  local begin, denied, k, value, last, tail = o + 1, false, nil, nil, 0, ''
  o, pending = begin, 0
  for i = 1, plan.n do
    local charge = plan[i]
    local alg, flags, place, size, cost = charge[1], charge[2], charge[3], charge[4], charge[6]
    if flags > 3 or place >= size or cost == 0 or alg == LOG or alg == LEASES then return nil end
    if place == 0 then
      k, pos = unpack_from('<I2', blob, pos)
      value, last, tail = values[k], 0, charge.tail or ''
    end
    local limit, window, cm, cr, rm, rr, burst = ordinary_terms(charge, pos)
    if not limit then return nil end
    if flags >= 2 then pos = pos + 4 end
    local has_room, ends
    if alg == KIT then
      has_room = ordinary_kit(k, cost, limit, window)
    else
      if place > 0 then
        o = o + 1
        out[o] = value and '\1' or '\0'
      elseif not ordinary_value(value, size, tail) then
        return nil
      end
      has_room, ends = ordinary_packed(charge, value, limit, burst, window, cm, cr, rm, rr)
    end
    if has_room == nil then return nil end
    if not has_room and flags % 2 == 0 then denied = true end
    if ends then
      if ends > last then last = ends end
      if place + 1 == size and not denied then ordinary_write(k, value, size, last, tail) end
    end
  end
  if not denied then ordinary_charged() end
  out[begin] = denied and '\2' or '\1'
  return pos
end
