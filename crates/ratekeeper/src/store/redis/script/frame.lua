-- The frame: reads what most checks need, judges every item, then writes.

-- What is at the keys of strings and kits.
local function read_texts(texts)
  if texts == 0 then return {} end
  if texts == 1 then
    local value = look('GET', KEYS[1])
    return { type(value) == 'table' and '' or value }
  end
  local read = call('MGET', unpack(KEYS, 1, texts))
  local absent, n = nil, 0
  for k = 1, texts do
    if not read[k] then
      absent, n = absent or {}, n + 1
      absent[n] = KEYS[k]
    end
  end
  -- MGET passes over what is not a string; we must not.
  if n > 0 and call('EXISTS', unpack(absent, 1, n)) > 0 then
    for k = 1, texts do
      if not read[k] and call('EXISTS', KEYS[k]) == 1 then read[k] = '' end
    end
  end
  return read
end

local careful

-- What is answered to an item that is out of the ordinary, and where the next one begins.
local function out_of_the_ordinary(op, number, plan, pos, refusal)
  careful = careful or prepare_careful()
  if op == 3 then return careful.adjust(number, pos, refusal) end
  if op == 4 then return careful.reset(number, pos, refusal) end
  return careful.check(op, plan, pos, refusal)
end

local function judge_items(refusal)
  local pos = first
  for _ = 1, items do
    local op, number = unpack_from('<BI2', blob, pos)
    local plan = (op <= 2 or op == 5) and plans[number]
    local before = o
    local next_pos = op == 0 and not refusal and ordinary(plan, pos + 3)
    if not next_pos then
      local answer
      answer, next_pos = out_of_the_ordinary(op, number, plan, pos + 3, refusal)
      o = before + 1
      out[o] = answer
    end
    pos = next_pos
  end
end

local function write_back(texts)
  for i = 1, to_write do
    local k = dirty[i]
    local value = values[k]
    if not value then
      write('DEL', KEYS[k])
    elseif marks[k] == IN_PLACE then
      write('SETRANGE', KEYS[k], '0', value)
    else
      local ttl = found[k] or unpack_from(TTL, value, ttl_at(byte(value, 2)))
      write('SET', KEYS[k], value, 'PX', px(ttl))
    end
  end
  for k = strings + 1, texts + lists do
    local other = found[k]
    if other then
      if other.alg then careful.write_list(other) else write_kit(other) end
    end
  end
end

-- Twice at most: if the server refuses to write, everything is judged again, and then what is
-- full still denies and the rest could not be counted.
for attempt = 1, 2 do
  local refusal = refused and sub(refused, 1, 255) -- its length is told in a byte
  found, marks, dirty, to_write, out, o = {}, {}, {}, 0, { pack('<d', now) }, 1
  values = read_texts(strings + kits)
  judge_items(refusal)
  write_back(strings + kits)
  if not refused or attempt == 2 then break end
end
return table.concat(out, '', 1, o)
