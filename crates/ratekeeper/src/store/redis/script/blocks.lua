-- Blocks of lists that change. Nothing is written before every item of the batch is judged.

local function set_block(list, i, id, number, count, units, last)
  local from = (i - 1) * BLOCK_BYTES
  list.index = sub(list.index, 1, from) .. pack(BLOCK, id, number, count, units, last)
      .. sub(list.index, from + BLOCK_BYTES + 1)
end

local function touch(list, block)
  list.family.dirty[block.id], list.family.changed = block, true
end

-- Takes n blocks out of the index, from the i-th on. Their places are free.
local function drop_blocks(list, i, n)
  if n == 0 then return end
  local family, from, free = list.family, (i - 1) * BLOCK_BYTES, { list.family.free }
  for j = 1, n do
    local id, _, _, units = unpack_from(BLOCK, list.index, from + (j - 1) * BLOCK_BYTES + 1)
    list.units, list.cache[id], family.dirty[id] = list.units - units, nil, nil
    free[j + 1] = pack('<I2', id)
  end
  list.index = sub(list.index, 1, from) .. sub(list.index, from + n * BLOCK_BYTES + 1)
  list.blocks, family.free, family.changed = list.blocks - n, concat(free), true
  if i == 1 then list.first, list.gone = 0, 0 end
end

-- A place for a new block: one that was used before, or behind the last.
local function free_place(family)
  local free = family.free
  if free == '' then
    family.places = family.places + 1
    return family.places
  end
  family.free = sub(free, 1, -3)
  local place = unpack_from('<I2', free, #free - 1)
  return place
end

-- Forgets what has expired.
local function begin_anew(list, at)
  if list_expiry(list, list.shift) > at then return end
  drop_blocks(list, 1, list.blocks)
  list.window, list.newest, list.shift, list.since, list.first, list.gone, list.units = 0, 0, 0, 0, 0, 0, 0
  list.next = fmod(at, NUMBERS) -- so that a receipt from an earlier life names nobody in this one
end

-- Lets go what is older than entries are kept.
local function trim(list, at)
  local ends = at + list.shift - list.window
  if ends < list.since then return end
  list.since = ends + 1
  if list.first > ends then return end
  drop_blocks(list, 1, first_after(list, ends) - 1)
  list.first, list.gone = 0, 0
  local id = list.blocks > 0 and unpack_from('<I2', list.index)
  local block = id and list.cache[id]
  if not block or not block.at then return end
  local i = 1
  while block.at[i] <= ends do
    list.gone = list.gone + block.units[i]
    i = i + 1
  end
  list.first = block.at[i]
end

-- Puts an entry behind the last.
local function append(list, at, units, number)
  local n, block, id, _, count, total = list.blocks
  if n > 0 then id, _, count, total = unpack_from(BLOCK, list.index, (n - 1) * BLOCK_BYTES + 1) end
  if n == 0 or count >= BLOCK_MAX then
    if n == BLOCKS_MAX then -- what is left has as many units as any limit
      local oldest = unpack_from('<d', list.index, LAST_AT)
      list.since = oldest + 1
      drop_blocks(list, 1, 1)
    end
    id, count, total = free_place(list.family), 0, 0
    list.index, list.blocks = list.index .. string.rep('\0', BLOCK_BYTES), list.blocks + 1
    block = { id = id, text = '', n = 0, at = {}, units = {}, number = {} }
    list.cache[id] = block
  else
    block = block_of(list, n)
  end
  count = count + 1
  block.n = count
  block.text = block.text .. (number and pack(HOLDER, at, units, number) or pack(ENTRY, at, units))
  if block.at then block.at[count], block.units[count], block.number[count] = at, units, number end
  set_block(list, list.blocks, id, number or 0, count, total + units, at)
  if list.units == 0 then list.first, list.gone = at, 0 end
  list.units = list.units + units
  touch(list, block)
end

-- Puts two neighbours into one block, if they fit and can be read.
local function join(list, i)
  if i < 1 or i >= list.blocks then return false end
  local id, _, count, units = unpack_from(BLOCK, list.index, (i - 1) * BLOCK_BYTES + 1)
  local _, number, more, others, last = unpack_from(BLOCK, list.index, i * BLOCK_BYTES + 1)
  if count + more > BLOCK_MAX then return false end
  local block, next_block = block_of(list, i), block_of(list, i + 1)
  if not block or not next_block then return false end
  block.text, block.n, block.at = block.text .. next_block.text, count + more, nil
  drop_blocks(list, i + 1, 1)
  list.units = list.units + others
  set_block(list, i, id, number, count + more, units + others, last)
  touch(list, block)
  return true
end

-- Takes units from an entry; it goes with the last of them.
local function take_from(list, i, block, j, units)
  local bytes = list.family.alg == LEASES and HOLDER_BYTES or ENTRY_BYTES
  local left, at, number = block.units[j] - units, block.at[j], block.number[j]
  local changed = ''
  if left > 0 then
    changed = number and pack(HOLDER, at, left, number) or pack(ENTRY, at, left)
    block.units[j] = left
  else
    table.remove(block.at, j)
    table.remove(block.units, j)
    table.remove(block.number, j)
    block.n = block.n - 1
  end
  block.text = sub(block.text, 1, (j - 1) * bytes) .. changed .. sub(block.text, j * bytes + 1)
  local n = block.n
  -- What is left in it may all be gone already.
  if n == 0 or block.at[n] < list.since then return drop_blocks(list, i, 1) end
  local total = units_in(list, i)
  set_block(list, i, block.id, block.number[n] or 0, n, total - units, block.at[n])
  list.units = list.units - units
  touch(list, block)
  if left == 0 and not join(list, i) then join(list, i - 1) end
end
