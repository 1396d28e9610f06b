-- Refunds, settlements and resets.

local function roll(ch, window, at)
  ch.a, ch.c, ch.e = sliding_roll(ch.a, ch.c, ch.e, window, at)
  ch.b = window
end

local function refund_packed(ch, at)
  if ch.alg == FIXED then
    if ch.receipt == ch.a and at < ch.a then ch.c = ch.c > ch.cost and ch.c - ch.cost or 0 end
  elseif ch.alg == SLIDING then
    roll(ch, ch.b, at)
    if ch.receipt == ch.a then
      ch.e = ch.e > ch.cost and ch.e - ch.cost or 0
    elseif ch.receipt + ch.b == ch.a then
      ch.c = ch.c > ch.cost and ch.c - ch.cost or 0
    end
  else
    -- Units drain in the order they came: what is left of a charge is owed until its receipt.
    local gm, gr, still, part = ch.cm, ch.cr, ch.receipt - at, ch.detail
    if still < 0 then still, part = 0, 0 end
    if less(still, part, gm, gr) then gm, gr = still, part end
    local debt, rest = debt_of(ch, at)
    if less(gm, gr, debt, rest) then
      debt, rest = debt - gm, rest - gr
      if rest < 0 then debt, rest = debt - 1, rest + ch.limit end
    else
      debt, rest = 0, 0
    end
    ch.a, ch.b, ch.c, ch.e = at + debt, 0, rest, ch.limit
  end
  save(ch)
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
    local most, over = ch.rm, ch.rr
    if ch.alg == LEAKY then most = most + ch.window end
    if less(most, over, debt, rest) then most, over = debt, rest end
    if less(most, over, owed, part) then owed, part = most, over end
    ch.a, ch.b, ch.c, ch.e = at + owed, 0, part, ch.limit
  end
  save(ch)
end

local function adjust_list(ch, at)
  local list = ch.list
  if ch.kind == 0 then
    if list.stored + list.tail == 0 then return end
    if ch.alg == LOG then refund_log(list, ch, at) else release(list, ch, at) end
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
    if not kit.exists or ends - ch.receipt > 2000 or ch.receipt - ends > 2000 then return end
    units = -(units < kit.count and units or kit.count)
  elseif not kit.exists and kit.add == 0 then
    kit.left = ch.window / 1000
  end
  kit.count, kit.add = kit.count + units, kit.add + units
end

local function adjust(n, pos, deny_writes)
  local id, digest
  id, digest, pos = unpack_from('<I2c8', blob, pos)
  local charges, failure = {}, nil
  for i = 1, n do
    local kind, receipt, detail, k
    kind, receipt, detail, k, pos = unpack_from('<BdI4I2', blob, pos)
    local ch = charge_of({ unpack_from(CHARGE, blob, pos) })
    ch.kind, ch.receipt, ch.detail, ch.k = kind, receipt, detail, k
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
    failure = failure or load(charges[i])
  end
  if failure then return failure, pos end
  if known then
    values[id] = sub(known.value, 1, 1) .. '\2' .. sub(known.value, 3)
    found[id] = known.forget_at
    mark(id, IN_PLACE)
  end
  for i = 1, n do
    local ch = charges[i]
    load(ch) -- again: two charges may share a value
    local at = now
    local seen, window = newest(ch)
    if seen > at and seen - at <= window then at = seen end
    if ch.list then
      adjust_list(ch, at)
    elseif ch.kit then
      adjust_kit(ch.kit, ch)
    elseif ch.kind == 1 then
      top_up_packed(ch, at)
    elseif ch.index then
      refund_packed(ch, at)
    end
  end
  return '\10', pos
end

local function reset(alg, pos, deny_writes)
  local ch = { alg = alg }
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
