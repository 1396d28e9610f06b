-- Counters of Application Kit: a number with a time to live, which is the window.

local function kit_at(k)
  local kit = found[k]
  if kit then return kit end
  local value, count = values[k], 0
  if value then
    count = whole(value)
    -- With a zero before it, it is no number to INCRBY.
    if not count or string.find(value, '^0%d') then return nil end
  end
  local left = value and call('PTTL', KEYS[k]) or 0
  if value and left == 0 then left = 1 end -- in its last millisecond it counts still
  kit = { k = k, count = count, left = left, exists = value and true, add = 0 }
  found[k] = kit
  return kit
end

local function write_kit(kit)
  local key = KEYS[kit.k]
  if kit.add ~= 0 and not kit.exists then
    write('SET', key, kit.count, 'PX', kit.left)
  else
    if kit.add ~= 0 then write('INCRBY', key, kit.add) end
    if kit.heal then write('PEXPIRE', key, kit.left) end
  end
end

local function charge_kit(kit, window, cost)
  if not kit.exists and kit.add == 0 then kit.left = window / 1000 end
  kit.count, kit.add = kit.count + cost, kit.add + cost
end
