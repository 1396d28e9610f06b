-- Lists: a header, then the entries (instant, units, number) in order. Only the ends are
-- read, unless something unusual happens.
local LIST, LIST_BYTES, ENTRY, ENTRY_BYTES = '<BBI2ddddI4', 40, '<dI4I4', 16

local function list_at(k, alg)
  local list = found[k]
  if list then return list end
  local ends = look('LRANGE', KEYS[k], '0', '1')
  if ends.err then return nil end
  list = { k = k, alg = alg, at = {}, units = {}, number = {}, stored = 0, head = 1, tail = 0,
           ttl = 0, window = 0, known = 0, used = 0, next = 0 }
  if ends[1] then
    if #ends[1] ~= LIST_BYTES or not READABLE[byte(ends[1])] or byte(ends[1], 2) ~= alg then return nil end
    local _
    _, _, _, list.ttl, list.window, list.known, list.used, list.next = unpack_from(LIST, ends[1])
    local n = call('LLEN', KEYS[k]) - 1
    list.exists, list.stored, list.tail = true, n, n
    local newest = n > 1 and call('LINDEX', KEYS[k], '-1') or ends[2]
    if n > 0 then
      if #ends[2] ~= ENTRY_BYTES or #newest ~= ENTRY_BYTES then return nil end
      list.at[1], list.units[1], list.number[1] = unpack_from(ENTRY, ends[2])
      list.at[n], list.units[n], list.number[n] = unpack_from(ENTRY, newest)
      if not is_instant(list.at[1]) or not is_instant(list.at[n]) then return nil end
    end
    if not is_length(list.window) or not is_instant(list.known) or not is_instant(list.used) then return nil end
  end
  found[k] = list
  return list
end

local function fetch(list, i, to)
  for offset, entry in ipairs(call('LRANGE', KEYS[list.k], i, to)) do
    local at = i + offset - 1
    if not list.at[at] and #entry == ENTRY_BYTES then
      local instant, units, number = unpack_from(ENTRY, entry)
      if is_instant(instant) then list.at[at], list.units[at], list.number[at] = instant, units, number end
    end
  end
end

-- Reads all entries, to write them anew; false if one of them cannot be read. A list that is `broken` is
-- left as it is.
local function fetch_all(list)
  if list.stored > 0 and not list.rewrite then fetch(list, 1, list.stored) end
  for i = list.head, list.tail do
    if not list.at[i] then
      list.broken = true
      return false
    end
  end
  list.rewrite = true
  return true
end

-- The instant of an entry; nothing if it cannot be read.
local function instant_in(list, i)
  if not list.at[i] then fetch(list, i, i + 31 < list.stored and i + 31 or list.stored) end
  return list.at[i]
end

local function last_of(list) return list.tail >= list.head and list.at[list.tail] or 0 end

local function list_expiry(list)
  if list.alg == LEASES then return list.known end
  return list.tail >= list.head and last_of(list) + list.window or 0
end

local function copy_of(list)
  local copy = {}
  for name, value in pairs(list) do
    if type(value) == 'table' then
      local entries = {}
      for i, entry in pairs(value) do entries[i] = entry end
      value = entries
    end
    copy[name] = value
  end
  return copy
end

-- The first entry that counts, and the units of it and all that follow. Nothing if the entries cannot be read, or
-- are not what the header says.
local function live(list, window, at)
  local i, used, ends = list.head, list.used, at
  if list.alg == LOG then
    if list_expiry(list) <= at then return list.tail + 1, 0 end
    ends = at - window
  end
  while i <= list.tail do
    local instant = instant_in(list, i)
    if not instant then return nil end
    if instant > ends then break end
    used = used - list.units[i]
    i = i + 1
  end
  if used < 0 or i > list.tail and used > 0 then return nil end
  return i, used
end

-- What the caller needs of a list: at most two entries that answer as all of them would. Nothing if the header counts
-- more than the entries have.
local function boiled_down(list, limit, cost, i, used)
  local head = pack('<BddI4', 3, list.window, list.known, list.next)
  local function entry(at, units) return pack('<dI4', at, units > U32_MAX and U32_MAX or units) end
  -- The newest instant of a log counts even if none of its entries does.
  if used == 0 then return last_of(list) == 0 and head .. '\0' or head .. '\1' .. entry(last_of(list), 0) end
  if used + cost <= limit or cost > limit then
    return head .. '\1' .. entry(last_of(list), used)
  end
  local left = used
  while true do
    local at = i <= list.tail and instant_in(list, i)
    if not at then return nil end
    left = left - list.units[i]
    if left + cost <= limit then
      if left == 0 then return head .. '\1' .. entry(at, used) end
      return head .. '\2' .. entry(at, used - left) .. entry(last_of(list), left)
    end
    i = i + 1
  end
end

-- Takes an entry out of a list that was read whole.
local function take_out(list, i)
  for j = i, list.tail - 1 do
    list.at[j], list.units[j], list.number[j] = list.at[j + 1], list.units[j + 1], list.number[j + 1]
  end
  list.tail = list.tail - 1
end

local function append(list, at, units, number)
  local i = list.tail + 1
  list.tail, list.at[i], list.units[i], list.number[i] = i, at, units, number
end
