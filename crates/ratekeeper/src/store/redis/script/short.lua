-- The short way, for what most checks are: token buckets and fixed windows in packed values, all
-- enforced, under no switch and no override. Anything out of the ordinary in a batch, and the whole
-- of it is for the general way: nothing has been written by then. No functions here, and few tables.
local FIRST, FIRST_B = TTL_BYTES - MOVING_BYTES + 1, HEAD_BYTES - B_BYTES + 1
local FIRST_WINDOW = HEAD_BYTES - FIXED_BYTES + 5 -- behind the tag
-- As text, because a number costs more: how the value of one counter is told, and after how many
-- bytes the moving parts of one and of four begin.
local ONE_FOUND, ONE_AT, FOUR_AT = '\2\52\0', '40', '124'
local KEYS, blob = KEYS, ARGV[1]
local call, pack, unpack_from, sub, byte = redis.call, struct.pack, struct.unpack, string.sub, string.byte
local now, items, plan_count, strings, kits, lists, overrides, pos = unpack_from(HEADER, blob)
if kits + lists > 0 or strings == 0
    or overrides > 0 and call('EXISTS', unpack(KEYS, strings + 1, strings + overrides)) > 0 then
  return general()
end
local given = now >= 0
if not given then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Each plan is flat: how many groups, and for each of them size, kind, bytes it has in an item,
-- how its value begins and how long that is, and five terms for each counter.
local plans = {}
for p = 1, plan_count do
  local n, groups, length = unpack_from(PLAN, blob, pos)
  if groups == 0 then return general() end
  local at = pos + PLAN_BYTES
  local size, kind, skip = byte(blob, at, at + GROUP_BYTES - 1)
  local plan
  if groups == 1 and size == 1 then
    at = at + GROUP_BYTES
    local head = HEAD_BYTES + FIXED_BYTES + B_BYTES
    plan = { 1, 1, kind, 2 + 4 * skip, sub(blob, at, at + head - 1), head, unpack_from(TERMS, blob, at + head) }
  else
    plan = { groups }
    local j = 2
    for _ = 1, groups do
      size, kind, skip = byte(blob, at, at + GROUP_BYTES - 1)
      at = at + GROUP_BYTES
      local head = HEAD_BYTES + (FIXED_BYTES + B_BYTES) * size
      plan[j], plan[j + 1], plan[j + 2] = size, kind, 2 + 4 * skip
      plan[j + 3], plan[j + 4] = sub(blob, at, at + head - 1), head
      at, j = at + head, j + 5
      for _ = 1, size do
        plan[j], plan[j + 1], plan[j + 2], plan[j + 3], plan[j + 4] = unpack_from(TERMS, blob, at)
        at, j = at + TERMS_BYTES, j + 5
      end
    end
  end
  plans[p] = plan
  pos = pos + length + n * CHARGE_BYTES
end

local values
if strings > 1 then
  values = call('MGET', unpack(KEYS, 1, strings))
else
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' then return general() end
  values = { value }
end
local moved = {}              -- the moving parts of values that are behind; false: none any more
local lives                   -- the times to live of values that are written anew
local dirty, writes = {}, 0   -- what is to be written, in this order
local new, absent = nil, 0    -- what seems not to be there yet
local out, o = { pack('<d', now) }, 1
local state, keys, movings, ends, places -- for more than one counter, more than one group

for _ = 1, items do
  local op, number, k = unpack_from('<BI2I2', blob, pos)
  if op > 0 then return general() end
  local plan, begin, denied = plans[number], o + 1, false
  local groups, j, last, moving, place = plan[1], 2, 0, nil, 2
  pos = pos + 3
  o = begin
  for g = 1, groups do
    if g > 1 then k = unpack_from('<I2', blob, pos) end
    local size, head, value, is_odd = plan[j], plan[j + 4], values[k], false
    pos, place = pos + plan[j + 2], j
    if value then
      moving = moved[k]
      if moving then
        value = sub(value, 1, head + TTL_BYTES) .. moving
        values[k], moved[k] = value, false
      end
      if #value ~= head + TTL_BYTES + MOVING_BYTES * size then return general() end
      if sub(value, 1, head) ~= plan[j + 3] then
        -- The same counters may be further ahead than this quota takes them: they are in debt.
        local fixed = head - B_BYTES * size
        if sub(value, 1, fixed) ~= sub(plan[j + 3], 1, fixed) then return general() end
        is_odd = true
      end
      out[o + 1], out[o + 2] = size == 1 and ONE_FOUND or pack('<BI2', 2, #value), value
      o = o + 2
      if size > 1 then
        o = o + 1
        out[o] = string.rep('\1', size - 1)
      end
    else
      o = o + 1
      out[o] = size == 1 and '\0' or string.rep('\0', size)
    end
    local at, rest, kind = 0, 0, plan[j + 1]
    j, last = j + 5, 0
    if kind == 2 then -- a fixed window: when it ends, and how much is in it
      if is_odd then return general() end -- nothing was ever counted in it
      local window = plan[j + 1]
      if value then at, rest = unpack_from(MOVING_PART, value, head + TTL_BYTES + 1) end
      if not (at - window <= now) then return general() end -- the clock has stepped, or it is no number
      if now >= at then at, rest = now + window, 0 end
      rest = rest + plan[j + 2]
      if rest > plan[j] then denied = true end
      j, last = j + 5, at
    else -- token buckets: when each is full again, and a part of a microsecond
      for i = 1, size do
        local limit, room = plan[j], plan[j + 3]
        at, rest = 0, 0
        if value then
          at, rest = unpack_from(MOVING_PART, value, head + MOVING_BYTES * i + FIRST)
          at = at - now
          if at < 1 and (at < 0 or rest == 0) then
            at, rest = 0, 0
            -- Now that it owes nothing, how far ahead it may be is this quota's to say.
            if is_odd then return general() end
          elseif not (at <= room) then -- a debt, unless the clock has stepped, or it is no number
            local window = unpack_from(NUMBER_PART, value, FIXED_BYTES * i + FIRST_WINDOW)
            local ahead = unpack_from(NUMBER_PART, value, FIXED_BYTES * size + B_BYTES * i + FIRST_B)
            if not (at <= window + ahead) or rest >= limit then return general() end
          elseif rest >= limit then
            return general()
          end
        end
        at, rest = at + plan[j + 1], rest + plan[j + 2]
        if rest >= limit then at, rest = at + 1, rest - limit end
        if at > room or at == room and rest > plan[j + 4] then denied = true end
        at, j = now + at, j + 5
        if at >= last then last = at + 1 end
        if size > 1 then
          state = state or {}
          state[2 * i - 1], state[2 * i] = at, rest
        end
      end
    end
    if not denied then
      if size == 1 then
        moving = pack(MOVING_PART, at, rest)
      else
        moving = pack(size == 4 and '<dI4dI4dI4dI4' or '<' .. string.rep('dI4', size), unpack(state, 1, 2 * size))
      end
      if groups > 1 then
        if not keys then keys, movings, ends, places = {}, {}, {}, {} end
        keys[g], movings[g], ends[g], places[g] = k, moving, last, place
      end
    end
  end
  out[begin] = denied and '\2' or '\1'
  if not denied then
    for g = 1, groups do
      if groups > 1 then k, moving, last, place = keys[g], movings[g], ends[g], places[g] end
      local value = values[k]
      if moved[k] == nil then
        writes = writes + 1
        dirty[writes] = k
        if not value then
          new, absent = new or {}, absent + 1
          new[absent] = KEYS[k]
        end
      end
      local ttl = value and unpack_from('<d', value, plan[place + 4] + 1) or 0
      if not (last <= ttl) then
        -- It would not live as long as its state: anew, with slack so that this is seldom.
        local left = last - now
        ttl = last + (left < SLACK_MIN and SLACK_MIN or left > SLACK_MAX and SLACK_MAX or left)
        lives = lives or {}
        local head = value and sub(value, 1, plan[place + 4]) or plan[place + 3]
        values[k], lives[k] = head .. pack('<d', ttl) .. moving, ttl
        moving = false
      end
      moved[k] = moving
    end
  end
end

-- What MGET passes over may be there all the same, and not be ours.
if new and call('EXISTS', unpack(new, 1, absent)) > 0 then return general() end
for i = 1, writes do
  local k = dirty[i]
  local value, moving, ttl, reply = values[k], moved[k], lives and lives[k]
  -- The first write may be refused: then nothing has happened, and the general way tells why.
  local write = i == 1 and redis.pcall or call
  if ttl then
    local left = ttl - now
    left = (left - left % 1000) / 1000 + 1
    if moving then value = sub(value, 1, #value - #moving) .. moving end
    reply = write('SET', KEYS[k], value, 'PX', given and left < TEST_TTL and TEST_TTL or left)
  elseif not moving then -- looked at after it was changed
    reply = write('SETRANGE', KEYS[k], '0', value)
  else
    local size = #moving
    local at = size == MOVING_BYTES and ONE_AT or size == 4 * MOVING_BYTES and FOUR_AT or #value - size
    reply = write('SETRANGE', KEYS[k], at, moving)
  end
  if i == 1 and type(reply) == 'table' and reply.err then return general() end
end
return table.concat(out, '', 1, o)
