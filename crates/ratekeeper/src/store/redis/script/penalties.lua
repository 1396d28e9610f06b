-- Penalties: gates that deny, strikes and offences.
local PENALTY, PENALTY_BYTES = '<BBBBI4I4I4I4dI4ddI4dI4', 64 -- then the sentences
-- What values call their counters, each with its length before it.
local GATE_NAME, STRIKES_NAME, OFFENCES_NAME = '\7penalty', '\7strikes', '\8offences'

-- The penalties of a plan, with their keys; and where the item goes on. Their gates and
-- strikes are put behind the charges, because they have a say in the instant.
local function penalties_of(plan, charges, pos)
  local terms = plan.penalties
  if not terms then
    terms = {}
    local from = plan.penal + 1
    for i = 1, byte(blob, plan.penal) do
      terms[i] = { unpack_from(PENALTY, blob, from) }
      from = from + PENALTY_BYTES
      terms[i].sentences = { unpack_from('<' .. string.rep('d', terms[i][4]), blob, from) }
      from = from + 8 * terms[i][4]
    end
    plan.penalties = terms
  end
  local penalties, n = {}, plan.n
  for i = 1, #terms do
    local t, k = terms[i], unpack_from('<I2', blob, pos)
    pos = pos + 2
    local flags = t[1]
    local penalty = {
      shadow = flags % 2 == 1, counts = flags % 4 >= 2, first = t[2] + 1, last = t[2] + t[3],
      sentences = t.sentences, n = t[4],
      gate = { alg = FIXED, k = k, tag = t[5], cost = 1, limit = 1, extra = 1, window = t.sentences[1],
               any_window = true, name = GATE_NAME },
      strikes = { alg = FIXED, k = k, tag = t[6], cost = 1, limit = t[8], extra = t[8], window = t[9],
                  name = STRIKES_NAME },
      offences = flags >= 4 and { alg = TOKEN, k = k, tag = t[7], cost = 1, limit = t[10], extra = t[10],
                                  window = t[11], cm = t[12], cr = t[13], rm = t[14], rr = t[15],
                                  name = OFFENCES_NAME },
    }
    penalties[i] = penalty
    charges[n + 2 * i - 1], charges[n + 2 * i] = penalty.gate, penalty.strikes
  end
  return penalties, pos
end

-- Finds the counters of a penalty, which are in one value; what to answer if it cannot be read.
local function load_penalty(penalty)
  local failure, value = load(penalty.gate), values[penalty.gate.k]
  if failure then return failure end
  local is_sound_value = seek(penalty.strikes, value)
  if penalty.offences then is_sound_value = seek(penalty.offences, value) and is_sound_value end
  return not is_sound_value and unreadable(penalty.gate.k) or nil
end

-- Counts a strike, and shuts the gate if it is one too many; what came of it.
local function strike(penalty, at)
  local gate, strikes, offences = penalty.gate, penalty.strikes, penalty.offences
  if admits(strikes, at) and strikes.nc < strikes.limit then
    commit(strikes, true, at)
    return 2
  end
  local came = 4
  if penalty.open then
    came = 3
    local so_far = 0
    if offences then
      local has_room = admits(offences, at)
      so_far = offences.limit - left_in(offences, at)
      commit(offences, has_room, at)
    end
    gate.window = penalty.sentences[so_far < 0 and 1 or so_far < penalty.n and so_far + 1 or penalty.n]
    admits(gate, at)
    commit(gate, true, at)
  end
  if strikes.index then
    strikes.a = nil
    save(strikes)
  end
  return came
end

-- What a judged check means for its penalties, and what is told of that.
local function penalise(penalties, charges, n, at, vetoed, peek, deny_writes)
  local answer, sent = { pack('<dB', at, deny_writes and 0 or 1) }, nil
  for i = n, 1, -1 do
    if byte(charges[i].old) == 2 then
      sent = charges[i].k
      break
    end
  end
  for i = 1, #penalties do
    local penalty, over, came = penalties[i], false, 0
    local gate = penalty.gate
    for j = penalty.first, penalty.last do
      if charges[j].cost > 0 and not charges[j].admitted then over = true end
    end
    if vetoed then
      if not penalty.open and not penalty.shadow then came = 1 end
    elseif over and penalty.counts and not peek and not deny_writes then
      came = strike(penalty, at)
    end
    if gate.healed and came ~= 3 and not peek and not deny_writes then save(gate) end
    local old = gate.old
    if old ~= '\0' then
      if sent == gate.k then old = '\1' else sent = gate.k end
    end
    answer[i + 1] = old .. string.char(came)
  end
  return concat(answer)
end
