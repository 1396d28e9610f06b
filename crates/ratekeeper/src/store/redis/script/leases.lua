-- Leases: an entry for each holder, the first to lapse first.

-- Brings leases into what the quota and the clock could have made.
local function heal_leases(list, window, at)
  local slack = window < list.window and 0 or window
  if list.known <= at + window + slack or not fetch_all(list) then return false end
  list.known, list.window = at + window, window
  for i = list.head, list.tail do
    if list.at[i] > list.known then list.at[i] = list.known end
  end
  return true
end

local function lease(list, window, at, units)
  if list.known <= at then list.next = fmod(at, 4294967296) end
  local ends, number = at + window, list.next
  list.next = fmod(number + 1, 4294967296)
  if ends > list.known then list.known = ends end
  list.used, list.window = list.used + units, window
  if last_of(list) <= ends then return append(list, ends, units, number) end
  fetch_all(list) -- a longer lease was in force before, and all of it can be read: see `admits`
  append(list, ends, units, number)
  local i = list.tail
  while i > list.head and list.at[i - 1] > ends do
    list.at[i], list.units[i], list.number[i] = list.at[i - 1], list.units[i - 1], list.number[i - 1]
    i = i - 1
  end
  list.at[i], list.units[i], list.number[i] = ends, units, number
end

-- Nearly always the holder is there as it was let in; the server finds it fast.
local function release(list, ch, at)
  if ch.receipt <= at then return false end
  if not list.changed and not list.rewrite then
    if write('LREM', KEYS[list.k], '1', pack(ENTRY, ch.receipt, ch.cost, ch.detail)) == 1 then
      local head = pack(LIST, FORMAT, list.alg, 0, list.ttl, list.window, list.known, list.used - ch.cost, list.next)
      write('LSET', KEYS[list.k], '0', head)
      found[list.k] = nil
      return true
    end
  end
  if not fetch_all(list) then return false end
  for i = list.head, list.tail do
    if list.number[i] == ch.detail and list.at[i] <= ch.receipt then
      if list.at[i] <= at then return false end
      local units = ch.cost < list.units[i] and ch.cost or list.units[i]
      list.units[i], list.used, list.changed = list.units[i] - units, list.used - units, true
      if list.units[i] == 0 then take_out(list, i) end
      return true
    end
  end
  return false
end
