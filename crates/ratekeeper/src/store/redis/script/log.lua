-- Sliding logs: an entry for each instant.

-- Notes units at an instant, together with what came at the same one.
local function push(list, at, units)
  if list.blocks == 0 or last_in(list) ~= at then return append(list, at, units) end
  local n = list.blocks
  local block = block_of(list, n)
  local from = #block.text - ENTRY_BYTES
  local _, known = unpack_from(ENTRY, block.text, from + 1)
  if known + units > U32_MAX then units = U32_MAX - known end
  block.text = sub(block.text, 1, from) .. pack(ENTRY, at, known + units)
  if block.at then block.units[block.n] = known + units end
  set_block(list, n, block.id, 0, block.n, units_in(list, n) + units, at)
  list.units = list.units + units
  touch(list, block)
end

-- The entry that a receipt names: its block and its place there. Nothing if there is none; false if the block cannot be
-- read.
local function entry_of(list, ch, at)
  local instant = ch.receipt + list.shift
  if ch.receipt + ch.window <= at or list_expiry(list, list.shift) <= at or instant < list.since then return nil end
  local b = first_after(list, instant - 1)
  if b > list.blocks then return nil end
  local block = entries_of(list, b)
  if not block then return false end
  for j = 1, block.n do
    if block.at[j] == instant then return b, block, j end
  end
end
