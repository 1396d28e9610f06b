-- Lists: logs and holders of leases, each a list of the server. Its first element is an index of the others: blocks of
-- up to 100 entries (instant, units; of a holder its number, too), oldest first. So a check reads the index and at most
-- two blocks, and what has expired goes by blocks. A block stays at its place; places of blocks that went are used
-- again.
--
-- The index: B format, B algorithm, B lists, B 0, d the end of the time to live, I2 places, I2 free ones. Then the
-- lists, one for each window of rule or plan: d that window, d how long entries are kept, d the newest instant at which
-- a place was taken (of leases), d what to take off all instants since the clock stepped back, d the instant before
-- which all is gone, d the first entry that is not (0: look; there may be none so old any more), d the units before it
-- in the first block, d the units of all blocks, I4 the next holder's number, I2 blocks; and of each block I2 its
-- place, I4 the number of its last holder, I2 entries, d units, d the instant of its last entry. At the end the free
-- places, I2 each.
local INDEX, INDEX_BYTES = '<BBBBdI2I2', 16
local LIST, LIST_BYTES = '<ddddddddI4I2', 70
local BLOCK, BLOCK_BYTES = '<I2I4I2dd', 24
local NUMBER_AT, UNITS_AT, LAST_AT = 3, 9, 17 -- in what the index has of a block
local ENTRY, ENTRY_BYTES = '<dI4', 12
local HOLDER, HOLDER_BYTES = '<dI4I4', 16
-- Two neighbours have more entries than fit one block, so that all of them have more than any limit has units.
local BLOCK_MAX, BLOCKS_MAX = 100, 256
local NUMBERS = 4294967296

local function new_list(family, own)
  local list = { family = family, own = own, window = 0, newest = 0, shift = 0, since = 0, first = 0, gone = 0,
                 units = 0, next = 0, blocks = 0, index = '', cache = {} }
  family.n = family.n + 1
  family[family.n] = list
  return list
end

local function is_sound_list(list)
  return is_length(list.own) and is_length(list.window) and is_instant(list.newest) and is_instant(list.shift)
      and is_instant(list.since) and is_instant(list.first) and is_instant(list.gone) and is_instant(list.units)
      and list.blocks <= BLOCKS_MAX and #list.index == list.blocks * BLOCK_BYTES
      and (list.blocks > 0 or list.units == 0)
end

-- All lists of a key; nothing if they cannot be read.
local function list_at(k, alg)
  local family = found[k]
  if family then return family end
  local index = look('LINDEX', KEYS[k], '0')
  if type(index) == 'table' then return nil end
  family = { k = k, alg = alg, n = 0, ttl = 0, places = 0, stored = 0, free = '', dirty = {} }
  if index then
    if #index < INDEX_BYTES or not READABLE[byte(index)] or byte(index, 2) ~= alg then return nil end
    local _, count, free
    _, _, count, _, family.ttl, family.places, free = unpack_from(INDEX, index)
    local pos = INDEX_BYTES + 1
    for _ = 1, count do
      if #index < pos + LIST_BYTES - 1 then return nil end
      local list = new_list(family, 0)
      list.own, list.window, list.newest, list.shift, list.since, list.first, list.gone, list.units, list.next,
        list.blocks, pos = unpack_from(LIST, index, pos)
      list.index = sub(index, pos, pos + list.blocks * BLOCK_BYTES - 1)
      pos = pos + list.blocks * BLOCK_BYTES
      if not is_sound_list(list) then return nil end
    end
    family.free = sub(index, pos)
    -- After a first write nothing may fail, so all places must be there.
    if #family.free ~= 2 * free or call('LLEN', KEYS[k]) ~= family.places + 1 then return nil end
    family.exists, family.stored = true, family.places
  end
  found[k] = family
  return family
end

-- The list of a charge: that of the window of its rule or plan.
local function list_of(ch)
  local family = ch.list
  for i = 1, family.n do
    if family[i].own == ch.rm then return family[i] end
  end
  return new_list(family, ch.rm)
end

local function last_in(list) return list.blocks > 0 and unpack_from('<d', list.index, #list.index - 7) or 0 end

-- The newest instant that counts for the clock, as it is stored.
local function newest_in(list) return list.family.alg == LEASES and list.newest or last_in(list) end

-- From when on a list says no more than none.
local function list_expiry(list, shift)
  if list.window == 0 or list.family.alg == LOG and list.blocks == 0 then return 0 end
  return newest_in(list) - shift + list.window
end

-- What to take off all instants: more, if the clock has stepped back by more than a window.
local function shift_at(list, at)
  local ahead = newest_in(list) - list.shift - at
  return ahead > list.window and list.shift + ahead or list.shift
end

-- The first block that ends later than an instant.
local function first_after(list, instant)
  local low, high = 1, list.blocks + 1
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if unpack_from('<d', list.index, (middle - 1) * BLOCK_BYTES + LAST_AT) > instant then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function units_in(list, i)
  local units = unpack_from('<d', list.index, (i - 1) * BLOCK_BYTES + UNITS_AT)
  return units
end

-- The i-th block as it is stored; nothing if it is not what the index says.
local function block_of(list, i)
  local id, _, count = unpack_from(BLOCK, list.index, (i - 1) * BLOCK_BYTES + 1)
  local block = list.cache[id]
  if block then return block end
  local text = call('LINDEX', KEYS[list.family.k], id .. '')
  local bytes = list.family.alg == LEASES and HOLDER_BYTES or ENTRY_BYTES
  if not text or count < 1 or count > BLOCK_MAX or #text ~= count * bytes then return nil end
  block = { id = id, text = text, n = count }
  list.cache[id] = block
  return block
end

-- The i-th block with its entries; nothing if they are not what the index says.
local function entries_of(list, i)
  local block = block_of(list, i)
  if not block or block.at then return block end
  local format, bytes, has_number = ENTRY, ENTRY_BYTES, list.family.alg == LEASES
  if has_number then format, bytes = HOLDER, HOLDER_BYTES end
  local ats, all, numbers, text, before, sum = {}, {}, {}, block.text, 0, 0
  for j = 1, block.n do
    local at, units, number = unpack_from(format, text, (j - 1) * bytes + 1)
    if not (at >= before and is_instant(at) and units > 0) then return nil end
    ats[j], all[j] = at, units
    if has_number then numbers[j] = number end
    before, sum = at, sum + units
  end
  local _, _, _, units, last = unpack_from(BLOCK, list.index, (i - 1) * BLOCK_BYTES + 1)
  if sum ~= units or before ~= last then return nil end
  block.at, block.units, block.number = ats, all, numbers
  return block
end

-- The units that count, behind which instant those are, the block of the first and the units in it that do not count.
-- Nothing if the blocks cannot be read, or are not what the index says.
local function live(list, window, at, shift)
  if list_expiry(list, shift) <= at or list.blocks == 0 then return 0 end
  local ends = at + shift - window
  if ends < list.since then ends = list.since - 1 end
  if list.first > ends then return list.units - list.gone, ends, 1, list.gone end
  local b, left = first_after(list, ends), list.units
  for i = 1, b - 1 do left = left - units_in(list, i) end
  if b > list.blocks then
    if left ~= 0 then return nil end
    return 0
  end
  local block, i, gone = entries_of(list, b), 1, 0
  if not block then return nil end
  while block.at[i] <= ends do
    gone = gone + block.units[i]
    i = i + 1
  end
  if not (left - gone > 0) then return nil end
  return left - gone, ends, b, gone
end

-- What the caller needs of a list: at most two entries that answer as all of them would. Nothing if the blocks are not
-- what the index says.
local function boiled_down(list, limit, cost, shift, used, ends, b, gone)
  local function instant(at) return at > shift and at - shift or 0 end
  local newest, last = instant(newest_in(list)), instant(last_in(list))
  local head = pack('<BddI4', 3, list.window, newest, list.next)
  local function entry(at, units) return pack('<dI4', at, units > U32_MAX and U32_MAX or units) end
  -- The newest instant of a log counts even if none of its entries does.
  if used == 0 then return list.blocks == 0 and head .. '\0' or head .. '\1' .. entry(last, 0) end
  if used + cost <= limit or cost > limit then return head .. '\1' .. entry(last, used) end
  local left, here = used, units_in(list, b) - gone
  while left - here + cost > limit do
    left, b = left - here, b + 1
    if b > list.blocks then return nil end
    here = units_in(list, b)
  end
  local block, i = entries_of(list, b), 1
  if not block then return nil end
  while block.at[i] and block.at[i] <= ends do i = i + 1 end
  while block.at[i] do
    left = left - block.units[i]
    if left + cost <= limit then
      local at = instant(block.at[i])
      if left == 0 then return head .. '\1' .. entry(at, used) end
      return head .. '\2' .. entry(at, used - left) .. entry(last, left)
    end
    i = i + 1
  end
end
