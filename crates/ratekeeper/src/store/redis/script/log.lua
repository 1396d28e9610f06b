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

local function refund_log(list, ch, at)
  if ch.receipt + ch.window <= at then return end
  fetch_all(list)
  local left = ch.cost
  while left > 0 and list.tail >= list.head and last_of(list) >= ch.receipt do
    local i = list.tail
    local units = left < list.units[i] and left or list.units[i]
    left, list.units[i], list.used = left - units, list.units[i] - units, list.used - units
    if list.units[i] == 0 then list.tail = i - 1 end
  end
  list.changed = true
end
