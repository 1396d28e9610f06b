-- Leases: an entry for each holder, in the order of their numbers.

local function lease(list, at, units)
  local instant, number = at + list.shift, list.next
  if instant < list.newest then instant = list.newest end -- the clock is behind: the order stands
  list.next = fmod(number + 1, NUMBERS)
  list.newest = instant
  append(list, instant, units, number)
end

-- How many holders came since one with this number.
local function age_of(list, number) return fmod(list.next - number - 1 + NUMBERS, NUMBERS) end

-- The holder that a receipt names: its block and its place there. Nothing if there is none; false if the block cannot
-- be read.
local function holder_of(list, ch, at)
  if ch.receipt <= at or list_expiry(list, list.shift) <= at then return nil end
  local age, low, high = age_of(list, ch.detail), 1, list.blocks + 1
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local last = unpack_from('<I4', list.index, (middle - 1) * BLOCK_BYTES + NUMBER_AT)
    if age_of(list, last) <= age then high = middle else low = middle + 1 end
  end
  if low > list.blocks then return nil end
  local block = entries_of(list, low)
  if not block then return false end
  for j = 1, block.n do
    if block.number[j] == ch.detail then
      local since = block.at[j]
      local is_there = since >= list.since and since - list.shift < ch.receipt and since - list.shift + ch.window > at
      if is_there then return low, block, j end
      return nil
    end
  end
end
