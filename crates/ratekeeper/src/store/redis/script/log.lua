-- Sliding logs: an entry for each instant, oldest first.

-- Brings a log into what the clock could have made.
local function heal_log(list, at)
  local ahead = last_of(list) - at
  if ahead <= list.window or not fetch_all(list) then return false end
  for i = list.head, list.tail do
    list.at[i] = list.at[i] > ahead and list.at[i] - ahead or 0
  end
  return true
end

-- Notes units at an instant, together with what came at the same one.
local function push(list, at, units)
  local i = list.tail
  if i >= list.head and last_of(list) == at then
    if list.units[i] + units > U32_MAX then units = U32_MAX - list.units[i] end
    list.units[i] = list.units[i] + units
    list.last_changed = true
  else
    append(list, at, units, 0)
  end
  list.used = list.used + units
end

-- The entry of an instant; nothing if there is none, or it cannot be read. Halves what is left to look at, so
-- that a long log costs no more than a dozen reads.
local function entry_at(list, instant)
  local low, high = list.head, list.tail
  while low <= high do
    local middle = (low + high - (low + high) % 2) / 2
    if not list.at[middle] then fetch(list, middle, middle) end
    local at = list.at[middle]
    if not at then return nil end
    if at == instant then return middle end
    if at < instant then low = middle + 1 else high = middle - 1 end
  end
end

-- Takes from the entry that the receipt names and no other.
local function refund_log(list, ch, at)
  if ch.receipt + ch.window <= at then return false end
  local i = entry_at(list, ch.receipt)
  if not i then return false end
  local units = ch.cost < list.units[i] and ch.cost or list.units[i]
  local left = list.units[i] - units
  if list.changed or list.rewrite then
    if not fetch_all(list) then return false end
    list.units[i], list.used, list.changed = left, list.used - units, true
    if left == 0 then take_out(list, i) end
    return true
  end
  -- As it is stored: one entry changes, and the header.
  local key = KEYS[list.k]
  if left > 0 then
    write('LSET', key, i, pack(ENTRY, list.at[i], left, list.number[i]))
  else
    write('LREM', key, '1', pack(ENTRY, list.at[i], list.units[i], list.number[i]))
  end
  local head = pack(LIST, FORMAT, list.alg, 0, list.ttl, list.window, list.known, list.used - units, list.next)
  write('LSET', key, '0', head)
  found[list.k] = nil
  return true
end
