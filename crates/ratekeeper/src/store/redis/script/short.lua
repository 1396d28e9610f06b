-- The short way, for what most checks are: token buckets and fixed windows in packed values, all
-- enforced and under no switch. Anything out of the ordinary in a batch, and the whole
-- of it is for the general way: nothing has been written by then. Few functions here, and few tables; tables
-- begin with as many elements as a single check needs, because making room one by one costs more.
local FIRST, FIRST_B = TTL_BYTES - MOVING_BYTES + 1, HEAD_BYTES - B_BYTES + 1
local TAG_BYTES = 4
local FIRST_WINDOW = HEAD_BYTES - FIXED_BYTES + TAG_BYTES + 1
-- As text, because a number costs more: after how many bytes the moving parts of one and of four counters begin.
local ONE_AT, FOUR_AT = '40', '124'
local FIRST_MOVING = '<ddI4' -- the end of the time to live, and the first of the moving parts
local KEYS, blob = KEYS, ARGV[1]
local call, try, pack, unpack_from = redis.call, redis.pcall, struct.pack, struct.unpack
local sub, byte = string.sub, string.byte
local now, items, plan_count, strings, kits, lists, overrides, pos = unpack_from(HEADER, blob)
if kits + lists > 0 or strings == 0 then return general() end
-- Where the first two checks of many have an override, most have: then asking for all of them is for nothing.
local any_override = overrides > 4 and call('EXISTS', KEYS[strings + 1], KEYS[strings + 3]) == 2
    or overrides > 0 and call('EXISTS', unpack(KEYS, strings + 1, strings + overrides)) > 0
local given = now >= 0
if not given then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- A plan is its first group, and that has the next one, if there is one. Each is flat: kind, size, bytes it has in an
-- item; how long the beginning of its value is, and how long it is in all; how it ends; what is told behind a value,
-- and if there is none; the next group; how its value begins; what is told before it; and five terms for each counter.
local KIND, SIZE, ITEM, FRONT_BYTES, BYTES, TAIL, TOLD_BEHIND, TOLD_NONE, NEXT, FRONT, TOLD =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
local FIRST_TERM, COUNTER_TERMS = 12, 5
local first_plan, plans -- most batches have one plan: it needs no table
for p = 1, plan_count do
  local n, groups, length, named, size, kind, skip = unpack_from(FIRST_GROUP, blob, pos)
  if groups == 0 then return general() end
  local at, charge_at, before = pos + PLAN_BYTES, pos + length, nil
  local names_at = charge_at + n * CHARGE_BYTES
  for _ = 1, groups do
    if before then size, kind, skip = byte(blob, at, at + GROUP_BYTES - 1) end
    at = at + GROUP_BYTES
    local tail = ''
    if named > 0 then -- the value says how long its names are; a rule without any has empty ones
      local bytes = named
      if groups > 1 then
        local low, high = byte(blob, at + 2, at + 3)
        bytes = low + 256 * high
      end
      tail = sub(blob, names_at, names_at + bytes - 1)
      names_at = names_at + (bytes > 0 and bytes or size)
    end
    local head = HEAD_BYTES + (FIXED_BYTES + B_BYTES) * size
    local bytes = head + TTL_BYTES + MOVING_BYTES * size + #tail
    local group
    if size == 1 then
      group = { kind, 1, 2 + 4 * skip, head, bytes, tail, '', '\0', false, unpack_from('<c32c3I4dI4dI4', blob, at) }
    else
      local parts, behind, none
      if size == 3 then
        parts, behind, none = '<c88c3I4dI4dI4I4dI4dI4I4dI4dI4', '\1\1', '\0\0\0'
      elseif size == 4 then
        parts, behind, none = '<c116c3I4dI4dI4I4dI4dI4I4dI4dI4I4dI4dI4', '\1\1\1', '\0\0\0\0'
      else
        parts, behind, none =
          '<c' .. head .. 'c3' .. string.rep(TERMS, size), string.rep('\1', size - 1), string.rep('\0', size)
      end
      group = { kind, size, 2 + 4 * skip, head, bytes, tail, behind, none, false, unpack_from(parts, blob, at) }
    end
    if any_override then group.charge_at = charge_at end
    if before then
      before[NEXT] = group
    elseif p == 1 then
      first_plan = group
    else
      plans = plans or { nil, nil }
      plans[p] = group
    end
    before, charge_at, at = group, charge_at + CHARGE_BYTES * size, at + head + TOLD_BYTES + TERMS_BYTES * size
  end
  pos = pos + length + n * CHARGE_BYTES + named
end
