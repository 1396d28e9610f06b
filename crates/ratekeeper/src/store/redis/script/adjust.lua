-- Refunds, settlements and resets.
local DEBT_WINDOWS_MAX = 10 -- that a bucket remembers beyond a full refill

-- What was given back under a receipt that left the process: format, units.
local NOTE, NOTE_BYTES = '<BI4', 5

local function roll(ch, window, at)
  ch.a, ch.c, ch.e = sliding_roll(ch.a, ch.c, ch.e, window, at)
  ch.b = window
end

-- Each of the functions that refund says whether anything of the charge still counted.
local function refund_packed(ch, at)
  local is_there = false
  if ch.alg == FIXED then
    is_there = ch.receipt == ch.a and at < ch.a and ch.c > 0
    if is_there then ch.c = ch.c > ch.cost and ch.c - ch.cost or 0 end
  elseif ch.alg == SLIDING then
    roll(ch, ch.b, at)
    if ch.receipt == ch.a then
      is_there = ch.e > 0
      ch.e = ch.e > ch.cost and ch.e - ch.cost or 0
    elseif ch.receipt + ch.b == ch.a then
      is_there = ch.c > 0
      ch.c = ch.c > ch.cost and ch.c - ch.cost or 0
    end
  else
    -- Units drain in the order they came: what is left of a charge is owed until its receipt.
    local gm, gr, still, part = ch.cm, ch.cr, ch.receipt - at, fmod(ch.detail, ch.limit)
    still = still + (ch.detail - part) / ch.limit
    if ch.receipt < at then still, part = 0, 0 end
    if less(still, part, gm, gr) then gm, gr = still, part end
    local debt, rest = debt_of(ch, at)
    is_there = gm + gr > 0 and debt + rest > 0
    if less(gm, gr, debt, rest) then
      debt, rest = debt - gm, rest - gr
      if rest < 0 then debt, rest = debt - 1, rest + ch.limit end
    else
      debt, rest = 0, 0
    end
    ch.a, ch.c, ch.e = at + debt, rest, ch.limit
  end
  save(ch)
  return is_there
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

local function adjust_list(ch, at)
  local list = ch.list
  if ch.kind == 0 then
    if list.stored + list.tail == 0 then return false end
    if ch.alg == LOG then return refund_log(list, ch, at) end
    return release(list, ch, at)
  elseif ch.alg == LOG then
    if list_expiry(list) <= at then list.head, list.used = list.tail + 1, 0 end
    if ch.window > list.window then list.window = ch.window end
    local last = last_of(list)
    push(list, last > at and last or at, ch.cost)
    list.changed = true
  else
    charge_list(list, ch, at)
  end
end

local function adjust_kit(kit, ch)
  local units = ch.cost
  if ch.kind == 0 then
    -- Its time to live is known to a millisecond; another window ends much later.
    local ends = now + kit.left * 1000
    if not kit.exists or ends - ch.receipt > 2000 or ch.receipt - ends > 2000 or kit.count == 0 then return false end
    units = -(units < kit.count and units or kit.count)
  elseif not kit.exists and kit.add == 0 then
    kit.left = ch.window / 1000
  end
  kit.count, kit.add = kit.count + units, kit.add + units
  return true
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

local function take_note(ch)
  values[ch.note] = pack(NOTE, FORMAT, ch.given + ch.cost)
  found[ch.note] = ch.until_when
  mark(ch.note, ANEW)
end

-- Changes one charge; how many units of it were given back.
local function adjust_one(ch)
  load(ch) -- again: two charges may share a value
  if ch.note > 0 then look_up_note(ch) end
  -- No receipt is of a quota that lets nothing pass.
  if ch.cost == 0 or ch.limit == 0 then return 0 end
  local at = now
  local seen, window = newest(ch)
  if seen > at and seen - at <= window then at = seen end
  local is_there = false
  if ch.list then
    is_there = adjust_list(ch, at)
  elseif ch.kit then
    is_there = adjust_kit(ch.kit, ch)
  elseif ch.kind == 1 then
    top_up_packed(ch, at)
  elseif ch.index then
    is_there = refund_packed(ch, at)
  end
  if ch.kind == 1 or not is_there then return 0 end
  if ch.note > 0 then take_note(ch) end
  return ch.cost
end

local function adjust(n, pos, deny_writes)
  local id, digest
  id, digest, pos = unpack_from('<I2c8', blob, pos)
  local charges, failure = {}, nil
  for i = 1, n do
    local kind, receipt, detail, k, note, in_all, until_when
    kind, receipt, detail, k, note, in_all, until_when, pos = unpack_from('<BdI4I2I2I4d', blob, pos)
    local ch = charge_of({ unpack_from(CHARGE, blob, pos) })
    ch.kind, ch.receipt, ch.detail, ch.k = kind, receipt, detail, k
    ch.note, ch.whole, ch.until_when = note, in_all, until_when
    charges[i], pos = ch, pos + CHARGE_BYTES
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
    failure = failure or load(ch) or ch.note > 0 and not look_up_note(ch) and unreadable(ch.note) or nil
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

local function reset(alg, pos, deny_writes)
  local ch = { alg = alg, all_windows = true }
  ch.k, ch.tag, pos = unpack_from('<I2I4', blob, pos)
  local failure = load(ch)
  if failure then return failure, pos end
  local list, kit = ch.list, ch.kit
  -- There, or about to be: an earlier item of the batch may have made it.
  local is_there = ch.index or list and (list.exists or list.changed) or kit and (kit.exists or kit.add ~= 0)
  if is_there and deny_writes then return pack('<BB', 7, #deny_writes) .. deny_writes, pos end
  if ch.index then
    ch.a = nil
    save(ch)
  elseif is_there then
    found[ch.k], values[ch.k] = nil, false
    write('DEL', KEYS[ch.k])
  end
  return is_there and '\14' or '\15', pos
end

return { check = check, adjust = adjust, reset = reset, write_list = write_list }
