-- Sliding logs: an entry for each instant, oldest first.

-- Brings a log into what the clock could have made.
local function heal_log(list, at)
  local ahead = last_of(list) - at
  if ahead <= list.window then return false end
  fetch_all(list)
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

-- Takes from the entry that the receipt names and no other.
local function refund_log(list, ch, at)
  if ch.receipt + ch.window <= at then return false end
  local low, high = list.head, list.tail
  while low < high do -- to the first entry that is not older
    local middle = low + high
    middle = (middle - middle % 2) / 2
    if not list.at[middle] then fetch(list, middle, middle) end
    if list.at[middle] < ch.receipt then low = middle + 1 else high = middle end
  end
  if low > list.tail then return false end
  if not list.at[low] then fetch(list, low, low) end
  if list.at[low] ~= ch.receipt then return false end
  fetch_all(list)
  local units = ch.cost < list.units[low] and ch.cost or list.units[low]
  list.units[low], list.used, list.changed = list.units[low] - units, list.used - units, true
  if list.units[low] == 0 then take_out(list, low) end
  return true
end
