-- Refunds, settlements and resets.
local DEBT_WINDOWS_MAX = 10 -- that a bucket remembers beyond a full refill

-- What was given back under a receipt that left the process: format, units.
local NOTE, NOTE_BYTES = '<BI4', 5
-- Of an item: the id and its digest, then for each change how, the receipt and the note, before the charge.
local ADJUST, ADJUST_BYTES = '<I2c8', 10
local CHANGE, CHANGE_BYTES = '<BdI4I2I2I4d', 29

local function roll(ch, window, at)
  ch.a, ch.c, ch.e = sliding_roll(ch.a, ch.c, ch.e, window, at)
  ch.b = window
end

-- The smaller of two numbers.
local function at_most(number, bound) return number < bound and number or bound end

-- A debt less another that is not larger.
local function bucket_less(debt, rest, gone, part, limit)
  if rest < part then return debt - gone - 1, rest + limit - part end
  return debt - gone, rest - part
end

-- Gives units of a bucket back; how many, where one that has begun to drain is one.
local function refund_bucket(ch, at)
  local part = fmod(ch.detail, ch.limit)
  local ends = ch.receipt + (ch.detail - part) / ch.limit
  -- What was given back before stood at the end of the charge, and all behind it has moved up.
  if ch.given > 0 then
    local gone, over = span(ch.given, ch.window, ch.limit)
    if not less(gone, over, ends, part) then return 0 end
    ends, part = bucket_less(ends, part, gone, over, ch.limit)
  end
  -- Units drain in the order they came: what is left of a charge is owed until its receipt.
  if ends < at then return 0 end
  local gm, gr, still = ch.cm, ch.cr, ends - at
  if less(still, part, gm, gr) then gm, gr = still, part end
  local debt, rest = debt_of(ch, at)
  if less(debt, rest, gm, gr) then gm, gr = debt, rest end
  if gm + gr == 0 then return 0 end -- nothing is no reason to round a debt to the rate of another quota
  debt, rest = bucket_less(debt, rest, gm, gr, ch.limit)
  ch.a, ch.c, ch.e = at + debt, rest, ch.limit
  local units, over = muldivmod(ch.limit, gm, ch.window)
  return at_most(units + ((over + gr) + (ch.window - (over + gr) % ch.window) % ch.window) / ch.window, ch.cost)
end

-- Each of the functions that refund says how many units of the charge still counted.
local function refund_packed(ch, at)
  local back = 0
  if ch.alg == FIXED then
    if ch.receipt == ch.a and at < ch.a then back = at_most(ch.c, ch.cost) end
    ch.c = ch.c - back
  elseif ch.alg == SLIDING then
    roll(ch, ch.b, at)
    if ch.receipt == ch.a then
      back = at_most(ch.e, ch.cost)
      ch.e = ch.e - back
    elseif ch.receipt + ch.b == ch.a then
      back = at_most(ch.c, ch.cost)
      ch.c = ch.c - back
    end
  else
    back = refund_bucket(ch, at)
  end
  save(ch)
  return back
end

local function top_up_packed(ch, at)
  if ch.alg == FIXED then
    if at >= ch.a then
      ch.a, ch.b = fixed_window_at(at, ch.window, ch.calendar)
      ch.c = 0
    end
    ch.c = ch.c + ch.cost < U32_MAX and ch.c + ch.cost or U32_MAX
  elseif ch.alg == SLIDING then
    roll(ch, ch.c + ch.e > 0 and ch.b or ch.window, at)
    ch.e = ch.e + ch.cost < U32_MAX and ch.e + ch.cost or U32_MAX
  else
    local debt, rest = debt_of(ch, at)
    local owed, part = bucket_sum(debt, rest, ch.cm, ch.cr, ch.limit)
    local full, over = ch.rm, ch.rr
    if ch.alg == LEAKY then full = full + ch.window end
    if less(full, over, owed, part) then
      local kept = full + DEBT_WINDOWS_MAX * ch.window
      if kept > WINDOW_MAX then kept = full < WINDOW_MAX and WINDOW_MAX or full end
      if less(kept, over, owed, part) then owed, part = kept, over end
      full, over = owed, part
      if less(owed, part, debt, rest) then owed, part = debt, rest end
    end
    ch.a, ch.b, ch.c, ch.e = at + owed, bucket_ahead(ch.b, debt, rest, full, over), part, ch.limit
  end
  save(ch)
end

local function adjust_kit(kit, ch)
  local units = ch.cost
  if ch.kind == 0 then
    -- Its time to live is known to a millisecond; another window ends much later.
    local ends = now + kit.left * 1000
    if not kit.exists or ends - ch.receipt > 2000 or ch.receipt - ends > 2000 then return 0 end
    units = -at_most(kit.count, units)
  elseif not kit.exists and kit.add == 0 then
    kit.left = ch.window / 1000
  end
  kit.count, kit.add = kit.count + units, kit.add + units
  return -units
end

-- Cuts a refund to what its receipt has left; false if what is noted of it cannot be read.
local function look_up_note(ch)
  local value = values[ch.note]
  ch.given = 0
  if value then
    if #value ~= NOTE_BYTES or not READABLE[byte(value)] then return false end
    local _
    _, ch.given = unpack_from(NOTE, value)
  end
  local left = ch.until_when > now and ch.whole - ch.given or 0
  if ch.cost > left then
    ch.cost = left > 0 and left or 0
    if ch.alg == TOKEN or ch.alg == LEAKY then ch.cm, ch.cr = span(ch.cost, ch.window, ch.limit) end
  end
  return true
end

local function take_note(ch, units)
  values[ch.note] = pack(NOTE, FORMAT, ch.given + units)
  found[ch.note] = ch.until_when
  mark(ch.note, ANEW)
end

-- When a charge is changed: now, or at the newest instant of its counter.
local function instant_for(ch)
  local seen, window = newest(ch)
  return seen > now and seen - now <= window and seen or now
end

-- Changes one charge; how many units of it were given back.
local function adjust_one(ch)
  load(ch) -- again: two charges may share a value
  if ch.note > 0 then
    look_up_note(ch)
    if values[ch.note] and ch.until_when <= now then -- it has outlived its time to live
      values[ch.note] = false
      mark(ch.note, ANEW)
    end
  end
  -- No receipt is of a quota that lets nothing pass.
  if ch.cost == 0 or ch.limit == 0 then return 0 end
  local at, back = instant_for(ch), 0
  if ch.list then
    if ch.kind == 1 then top_up_list(ch, at) else back = refund_list(ch, at) end
  elseif ch.kit then
    back = adjust_kit(ch.kit, ch)
  elseif ch.kind == 1 then
    top_up_packed(ch, at)
  elseif ch.index then
    back = refund_packed(ch, at)
  end
  if ch.kind == 1 or back == 0 then return 0 end
  if ch.note > 0 then take_note(ch, back) end
  return back
end

local function adjust(n, pos, deny_writes)
  local id, digest
  id, digest = unpack_from(ADJUST, blob, pos)
  pos = pos + ADJUST_BYTES
  local charges, failure = {}, nil
  for i = 1, n do
    local kind, receipt, detail, k, note, in_all, until_when
    kind, receipt, detail, k, note, in_all, until_when = unpack_from(CHANGE, blob, pos)
    local ch = charge_of({ unpack_from(CHARGE, blob, pos + CHANGE_BYTES) })
    ch.kind, ch.receipt, ch.detail, ch.k = kind, receipt, detail, k
    ch.note, ch.whole, ch.until_when, ch.given = note, in_all, until_when, 0
    charges[i], pos = ch, pos + CHANGE_BYTES + CHARGE_BYTES
  end
  local known = id > 0 and id_record(id)
  if id > 0 then
    if known == nil then return unreadable(id), pos end
    if not known or known.digest ~= digest or known.stage == 0 then return '\13', pos end
    if known.stage == 2 then return '\11', pos end
    if known.open_until <= now then return '\12', pos end
  end
  if deny_writes then return pack('<BB', 7, #deny_writes) .. deny_writes, pos end
  for i = 1, n do
    local ch = charges[i]
    failure = failure or load(ch) or ch.note > 0 and not look_up_note(ch) and unreadable(ch.note)
        or ch.list and not can_adjust(ch, instant_for(ch)) and unreadable(ch.k) or nil
  end
  if failure then return failure, pos end
  if known then
    values[id] = sub(known.value, 1, 1) .. '\2' .. sub(known.value, 3)
    found[id] = known.forget_at
    mark(id, IN_PLACE)
  end
  local answer = { '\10' }
  for i = 1, n do
    answer[i + 1] = pack('<I4', adjust_one(charges[i]))
  end
  return concat(answer), pos
end

-- Whether something counts in any window of a counter that is there.
local function counts_in_a_window(ch)
  local value = values[ch.k]
  local count = byte(value, 2)
  for i = 1, count do
    local tag, _, a, b, c, e = record(value, count, i)
    if tag == ch.tag and expiry(ch.alg, a, b, c, e) > now then return true end
  end
  return false
end

-- Forgets a counter in all its windows; whether something counted in it, nothing if the server does not write.
local function forget(alg, k, tag, deny_writes)
  local ch = { alg = alg, k = k, tag = tag, all_windows = true }
  if load(ch) then
    -- Unreadable: only a reset may delete it.
    if deny_writes then return nil end
    found[k], values[k] = nil, false
    write('DEL', KEYS[k])
    return true
  end
  local list, kit = ch.list, ch.kit
  -- There, or about to be: an earlier item of the batch may have made it.
  local is_there = ch.index or list and (list.exists or list.changed) or kit and (kit.exists or kit.add ~= 0)
  if not is_there then return false end
  if deny_writes then return nil end
  -- What is over counts for nothing: it goes, and nobody is told of it.
  local is_live = not list
  if ch.index then
    is_live = counts_in_a_window(ch)
    ch.a = nil
    save(ch)
    return is_live
  end
  for i = 1, list and list.n or 0 do
    if list_expiry(list[i], list[i].shift) > now then is_live = true end
  end
  found[k], values[k] = nil, false
  write('DEL', KEYS[k])
  return is_live
end

-- Forgets all counters that a key may stand for.
local function reset(n, pos, deny_writes)
  local tag, counted, refused_one
  tag, pos = unpack_from('<I4', blob, pos)
  for _ = 1, n do
    local alg, k
    alg, k, pos = unpack_from('<BI2', blob, pos)
    local is_live = forget(alg, k, tag, deny_writes)
    if is_live == nil then refused_one = true end
    counted = counted or is_live
  end
  if refused_one then return pack('<BB', 7, #deny_writes) .. deny_writes, pos end
  return counted and '\14' or '\15', pos
end

return { check = check, adjust = adjust, reset = reset, write_list = write_list }
