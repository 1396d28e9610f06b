-- The decision on a check.

-- Judges all charges at one instant. The answer, and the instant.
local function judge(charges, n, peek, deny_writes, penalties)
  local at, again = now, true
  local all = penalties and n + 2 * #penalties or n
  while again do
    again = false
    local latest = at
    for i = 1, all do
      local seen, window = newest(charges[i])
      if seen > at and seen - at <= window and seen > latest then latest = seen end
    end
    if latest > at then at, again = latest, true end
  end
  local denied = false
  for i = 1, penalties and #penalties or 0 do
    local penalty = penalties[i]
    penalty.open = admits(penalty.gate, at)
    if not penalty.open and not penalty.shadow then denied = true end
  end
  local vetoed = denied
  for i = 1, n do
    local ch = charges[i]
    ch.admitted = admits(ch, at)
    if ch.broken then return unreadable(ch.k), at end
    if ch.lifted then ch.admitted = true elseif ch.blocked then ch.admitted = false end
    if ch.cost > 0 and not ch.shadow and not ch.admitted then denied = true end
  end
  if deny_writes and not denied and not peek then
    return pack('<BB', 7, #deny_writes) .. deny_writes, at
  end
  local answer = { denied and '\2' or '\1' }
  for i = 1, n do
    local ch, before = charges[i], charges[i - 1]
    local old = ch.old
    if before and before.k == ch.k and before.old == old and old ~= '\0' and not ch.list then old = '\1' end
    answer[i + 1] = (ch.found or '') .. old
    if not peek and not deny_writes then
      commit(ch, not denied and ch.cost > 0 and ch.admitted and not ch.lifted and not ch.blocked, at)
    end
  end
  if penalties then answer[n + 2] = penalise(penalties, charges, n, at, vetoed, peek, deny_writes) end
  return concat(answer), at
end
