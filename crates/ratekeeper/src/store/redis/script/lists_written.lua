-- Lists that have changed.
local FEW_MAX, PLACES_MIN = 2, 8 -- a key of more places is written anew when so few blocks are left

-- Whether an entry can be put behind the last: that block can be read, or all of them are over.
local function can_append(list, shift, at)
  return list.blocks == 0 or list_expiry(list, shift) <= at or block_of(list, list.blocks) ~= nil
end

local function charge_list(ch, shift, at)
  local list = list_of(ch)
  list.shift = shift
  begin_anew(list, at)
  list.window = ch.window > ch.rm and ch.window or ch.rm
  trim(list, at)
  if ch.alg == LOG then push(list, at + list.shift, ch.cost) else lease(list, at, ch.cost) end
end

-- Charges what an earlier charge cost more, under the quota of that time.
local function top_up_list(ch, at)
  local list = list_of(ch)
  begin_anew(list, at)
  local window = ch.window > ch.rm and ch.window or ch.rm
  if window > list.window then list.window = window end
  if ch.alg == LEASES then return lease(list, at, ch.cost) end
  local instant, last = at + list.shift, last_in(list)
  push(list, last > instant and last or instant, ch.cost)
end

-- Whether what a refund or a settled charge needs of its list can be read.
local function can_adjust(ch, at)
  local list = list_of(ch)
  if ch.kind == 1 then return can_append(list, list.shift, at) end
  local named = ch.alg == LOG and entry_of or holder_of
  return named(list, ch, at) ~= false
end

-- Gives back units of what the receipt names; how many.
local function refund_list(ch, at)
  local list = list_of(ch)
  local named = ch.alg == LOG and entry_of or holder_of
  local b, block, j = named(list, ch, at)
  if not b then return 0 end
  local units = ch.cost < block.units[j] and ch.cost or block.units[j]
  take_from(list, b, block, j, units)
  return units
end

-- Lets one list that is over go; of several, the others next time.
local function drop_expired(family)
  for i = 1, family.n do
    local list = family[i]
    if list.blocks > 0 and list_expiry(list, list.shift) <= now then return drop_blocks(list, 1, list.blocks) end
  end
end

-- The index, with those lists that say something; nothing if none does. And until when they do.
local function index_of(family)
  local parts, n, last = {}, 0, 0
  for i = 1, family.n do
    local list = family[i]
    local ends = list_expiry(list, list.shift)
    if ends > now or list.blocks > 0 then
      n = n + 1
      parts[n] = pack(LIST, list.own, list.window, list.newest, list.shift, list.since, list.first, list.gone,
        list.units, list.next, list.blocks) .. list.index
      if ends > last then last = ends end
    end
  end
  if not (last <= family.ttl) then family.ttl, family.renew = ttl_until(last), true end
  local head = pack(INDEX, FORMAT, family.alg, n, 0, family.ttl, family.places, #family.free / 2)
  return n > 0 and head .. concat(parts) .. family.free
end

-- Gives the few blocks that are left the first places, so that a key shrinks. Nothing if one cannot be read.
local function closed_up(family)
  local texts, n = {}, 0
  for i = 1, family.n do
    local list = family[i]
    for b = 1, list.blocks do
      local block = block_of(list, b)
      if not block then return nil end
      n = n + 1
      texts[n] = block.text
    end
  end
  n = 0
  for i = 1, family.n do
    local list = family[i]
    for b = 1, list.blocks do
      local _, number, count, units, last = unpack_from(BLOCK, list.index, (b - 1) * BLOCK_BYTES + 1)
      n = n + 1
      set_block(list, b, n, number, count, units, last)
    end
  end
  family.places, family.free, family.ttl = n, '', 0
  return texts
end

local function write_list(family)
  if not family.changed then return end
  drop_expired(family)
  local key, exists, blocks = KEYS[family.k], family.exists, family.places - #family.free / 2
  local texts = exists and family.places > PLACES_MIN and blocks <= FEW_MAX and closed_up(family)
  local index = index_of(family)
  if exists and (texts or not index) then write('DEL', key) end
  if not index then return end
  if texts then
    write('RPUSH', key, index, unpack(texts))
  else
    if exists then write('LSET', key, '0', index) else write('RPUSH', key, index) end
    for place = 1, family.places do
      local block = family.dirty[place]
      if place > family.stored then
        write('RPUSH', key, block and block.text or '')
      elseif block then
        write('LSET', key, place .. '', block.text)
      end
    end
  end
  if family.renew then write('PEXPIRE', key, px(family.ttl)) end
end
