-- Checks, and the records of those that have an id.
local ID, ID_BYTES = '<BBc8dddI4', 38           -- then the answer, then what to keep

-- The record of an id: false if there is none, nil if it cannot be read.
local function id_record(k)
  local value = values[k]
  if not value then return false end
  if #value < ID_BYTES or not READABLE[byte(value)] then return nil end
  local _, stage, digest, open_until, forget_at = unpack_from(ID, value)
  if forget_at <= now then return false end
  return { stage = stage, digest = digest, open_until = open_until, forget_at = forget_at, value = value }
end

-- Judges a check; the answer, and where the next item begins.
local function check(op, plan, pos, deny_writes)
  local n, failure, penalties = plan.n, nil, nil
  local is_penal = op == 5
  if is_penal then op, pos = byte(blob, pos), pos + 1 end
  local charges
  charges, pos = charges_of(charges_in(plan), pos)
  if is_penal then penalties, pos = penalties_of(plan, charges, pos) end
  for i = 1, n do
    failure = failure or resolve(charges[i])
  end
  local peek, id, argument, keep, hold, digest = op == 1, nil, nil, nil, nil, nil
  if op == 2 then
    peek, id, argument, keep, hold, digest, pos = unpack_from('<BI2I2ddc8', blob, pos)
    peek = peek == 1
  end
  local known = id and id_record(id)
  if known then
    return known.digest == digest and pack('<BI4', 3, #known.value) .. known.value or '\4', pos
  end
  if known == nil and id then return unreadable(id), pos end
  for i = 1, n do
    failure = failure or load(charges[i])
  end
  for i = 1, penalties and #penalties or 0 do
    failure = failure or load_penalty(penalties[i])
  end
  if failure then return failure, pos end
  for i = 1, n do
    local ch = charges[i]
    if has_too_many_windows(ch) or ch.list and has_too_many_lists(ch) then return '\6', pos end
    -- Once for a value: it counts those of all charges.
    local is_first = i == 1 or charges[i - 1].k ~= ch.k
    if is_first and has_too_many_counters(ch, charges) then return '\8', pos end
  end
  local answer, at = judge(charges, n, peek, deny_writes, penalties)
  if id and not peek and byte(answer) == 1 then
    local stage, open_until = 0, at
    if hold >= 0 then stage, open_until = 1, at + hold end
    local forget_at = open_until + keep
    values[id] = pack(ID, FORMAT, stage, digest, open_until, forget_at, now, #answer) .. answer .. ARGV[argument]
    found[id] = forget_at
    mark(id, ANEW)
  end
  return answer, pos
end
