-- Reads the values, and judges the items on the short way.
local values
if strings > 1 then
  values = call('MGET', unpack(KEYS, 1, strings))
else
  local value = try('GET', KEYS[1])
  if value and value.err then return general() end -- a string has no such field
  values = { value }
end
local moved = { nil, nil }               -- the moving parts of values that are behind; false: none any more
local lives                         -- the times to live of values that are written anew
local others                        -- where the moving parts begin in values that have others' counters, too
local first_dirty, dirty            -- what is to be written, in this order; what is one thing needs no table
local writes = 0
local new, absent = nil, 0          -- what seems not to be there yet
local out, o = { pack('<d', now), '', '', '', '' }, 1
local state -- for more than one counter
local several, pending -- for more than one group: key, moving parts, end, time to live and terms of each

for _ = 1, items do
  local op, number, k = unpack_from('<BI2I2', blob, pos)
  if op > 0 then return general() end
  local group, begin, denied = number == 1 and first_plan or plans[number], o + 1, false
  local g, terms, moving, last, ttl = 0
  pos = pos + 3
  o = begin
  several = group[NEXT]
  repeat
    terms = group
    local size = group[SIZE]
    if any_override and group[ITEM] > 2 then
      if size > 1 then
        for at = pos + 2, pos + group[ITEM] - 2, 2 do
          local key = unpack_from('<I2', blob, at)
          if key > 0 and call('EXISTS', KEYS[key]) > 0 then return general() end
        end
      else
        local key, organisation = unpack_from('<I2I2', blob, pos + 2)
        for level = 7, 8 do
          local saying = key > 0 and known[key]
          if saying and saying == KEYS[key] then
            saying = false
            local fields = try('HLEN', KEYS[key])
            if fields ~= 0 then
              -- Two calls cost less than one for all fields if there is but one. Not everybody is allowed to.
              local limit, seconds = fields == 1 and try('HGET', KEYS[key], 'max_requests'), nil
              if not limit or limit.err then
                local read = try('HMGET', KEYS[key], 'max_requests', 'expiry', 'window_ms', 'expires_at')
                local expires = read[4]
                limit, seconds = read[1], read[2] or nil
                -- Not a hash, or not as we write it.
                if limit == nil or read[3] or not limit and (seconds or expires) then return general() end
                if expires then
                  expires = string.find(expires, '^%d+$') and #expires <= 16 and expires + 0
                  if not (expires and now < expires and expires < EXACT) then return general() end
                end
              end
              if limit then
                local text = seconds and seconds .. '/' .. limit or limit
                saying = sayings[level][text]
                if not saying then
                  saying = { limit = limit, seconds = seconds, level = level }
                  sayings[level][text] = saying
                end
                if saying.seconds ~= seconds then return general() end -- others write what they like
              end
            end
            known[key] = saying
          end
          if saying then
            terms = saying[group]
            if not terms then
              terms = force(group, saying)
              if not terms then return general() end
              saying[group] = terms
            end
            break
          end
          key = organisation
        end
      end
    end
    pos = pos + group[ITEM]
    local value, own, head, is_odd, at, rest = values[k], terms[FRONT], terms[FRONT_BYTES], false, 0, 0
    ttl = 0
    if value then
      moving = moved[k]
      if moving then
        value = sub(value, 1, head + TTL_BYTES) .. moving .. terms[TAIL]
        values[k] = value
        moved[k] = false
      end
      if #value ~= terms[BYTES] then
        -- Behind the counters of this check there may be others: of another plan, or of tiers that went. As long as
        -- all of them count they are left alone; the general way drops what is over.
        local format, count, low, high = byte(value, 1, 4)
        local fixed = HEAD_BYTES + FIXED_BYTES * size
        if not high or format ~= byte(own) or count <= size or moved[k] ~= nil or others and others[k]
            or #value ~= HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES + MOVING_BYTES) * count + low + 256 * high
            or sub(value, HEAD_BYTES + 1, fixed) ~= sub(own, HEAD_BYTES + 1, fixed) then
          return general()
        end
        local bs = HEAD_BYTES + FIXED_BYTES * count
        if sub(value, bs + 1, bs + B_BYTES * size) ~= sub(own, fixed + 1) then return general() end
        local from = bs + B_BYTES * count + TTL_BYTES
        for i = size, count - 1 do
          if not (unpack_from(NUMBER_PART, value, from + MOVING_BYTES * i + 1) > now) then return general() end
        end
        others = others or {}
        others[k] = from
        value = own .. sub(value, from - TTL_BYTES + 1, from + MOVING_BYTES * size) .. terms[TAIL]
        values[k] = value
      end
      if sub(value, 1, head) ~= own then
        -- The same counters may be further ahead than this quota takes them: they are in debt.
        local fixed = head - B_BYTES * size
        if sub(value, 1, fixed) ~= sub(own, 1, fixed) then return general() end
        is_odd = true
      end
      ttl, at, rest = unpack_from(FIRST_MOVING, value, head + 1)
      out[o + 1] = terms[TOLD]
      o = o + 2
      out[o] = value
      if size > 1 then
        o = o + 1
        out[o] = terms[TOLD_BEHIND]
      end
    else
      o = o + 1
      out[o] = terms[TOLD_NONE]
    end
    if terms[KIND] == 2 then -- a fixed window: when it ends, and how much is in it
      if is_odd then return general() end -- nothing was ever counted in it
      local window = terms[FIRST_TERM + 1]
      if not (at - window <= now) then return general() end -- the clock has stepped, or it is no number
      if now >= at then at, rest = now + window, 0 end
      rest = rest + terms[FIRST_TERM + 2]
      if rest > terms[FIRST_TERM] then denied = true end
      last = at
    else -- token buckets: when each is full again, and a part of a microsecond
      local j = FIRST_TERM
      last = 0
      for i = 1, size do
        local limit, room = terms[j], terms[j + 3]
        if value then
          if i > 1 then at, rest = unpack_from(MOVING_PART, value, head + MOVING_BYTES * i + FIRST) end
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
        else
          at, rest = 0, 0
        end
        at = at + terms[j + 1]
        rest = rest + terms[j + 2]
        if rest >= limit then at, rest = at + 1, rest - limit end
        if at > room or at == room and rest > terms[j + 4] then denied = true end
        at = now + at
        if at >= last then last = at + 1 end
        if size > 1 then
          j = j + COUNTER_TERMS
          state = state or { nil, nil, nil, nil, nil, nil, nil, nil }
          state[2 * i - 1], state[2 * i] = at, rest
        end
      end
    end
    if not denied then
      if size == 1 then
        moving = pack(MOVING_PART, at, rest)
      else
        moving = pack(size == 4 and '<dI4dI4dI4dI4' or size == 3 and '<dI4dI4dI4' or '<' .. string.rep('dI4', size),
          unpack(state, 1, 2 * size))
      end
      if several then
        pending = pending or { nil, nil, nil, nil, nil, nil, nil, nil, nil, nil }
        pending[g + 1], pending[g + 2], pending[g + 3], pending[g + 4], pending[g + 5] = k, moving, last, ttl, terms
        g = g + 5
      end
    end
    group = group[NEXT]
    if group then k = unpack_from('<I2', blob, pos) end
  until not group
  out[begin] = denied and '\2' or '\1'
  while not denied do
    if several then
      g = g - 5
      k, moving, last, ttl, terms = pending[g + 1], pending[g + 2], pending[g + 3], pending[g + 4], pending[g + 5]
    end
    local value = values[k]
    if moved[k] == nil then
      writes = writes + 1
      if writes == 1 then
        first_dirty = k
      else
        dirty = dirty or { nil, nil }
        dirty[writes] = k
      end
      if not value then
        new, absent = new or {}, absent + 1
        new[absent] = KEYS[k]
      end
    end
    if not (last <= ttl) then
      if others and others[k] then return general() end
      -- It would not live as long as its state: anew, with slack so that this is seldom.
      local left = last - now
      ttl = last + (left < SLACK_MIN and SLACK_MIN or left > SLACK_MAX and SLACK_MAX or left)
      lives = lives or {}
      local head = value and sub(value, 1, terms[FRONT_BYTES]) or terms[FRONT]
      values[k], lives[k] = head .. pack('<d', ttl) .. moving .. terms[TAIL], ttl
      moving = false
    end
    moved[k] = moving
    if g == 0 then break end
  end
end
