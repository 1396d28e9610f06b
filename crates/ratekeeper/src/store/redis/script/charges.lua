-- Charges as tables, with their keys and their overrides.

local concat = table.concat
local U32_MAX = 4294967295
-- The formats that can be read; values of others are left alone. For a new one: first every
-- instance learns to read it, then it is written.
local READABLE = { [2] = true }

-- A charge to work with.
local function charge_of(parts)
  local flags = parts[2]
  local ch = {
    alg = parts[1], place = parts[3], size = parts[4], tag = parts[5], cost = parts[6], limit = parts[7],
    window = parts[8], cm = parts[9], cr = parts[10], rm = parts[11], rr = parts[12], extra = parts[13],
    name = parts.name, shadow = flags % 2 == 1, overridable = flags % 4 >= 2,
    lifted = flags % 8 >= 4, blocked = flags % 16 >= 8, closed = flags % 64 >= 32, any_window = flags >= 64,
  }
  if flags % 32 >= 16 then
    ch.aligned = parts[14] == 6
    ch.calendar = ch.aligned and aligned or calendar_of(parts[14], parts[15])
  end
  return ch
end

-- The charges of a check, with their keys; and where the item goes on.
local function charges_of(plan, pos)
  local charges, k = {}, nil
  for i = 1, plan.n do
    local ch = charge_of(plan[i])
    if ch.place == 0 then k, pos = unpack_from('<I2', blob, pos) end
    ch.k = k
    if ch.overridable then ch.project, ch.organisation, pos = unpack_from('<I2I2', blob, pos) end
    charges[i] = ch
  end
  return charges, pos
end

local function unreadable(k) return pack('<BI2', 5, k) end

-- Applies the override there is; what to answer if it cannot be read.
local function resolve(ch)
  if not ch.project then return nil end
  local terms, level, k = override_for(ch.project, ch.organisation)
  if terms == nil then return nil end
  if not terms then return unreadable(k) end
  override(ch, terms[1] or ch.limit, terms[2])
  ch.found = pack('<Bdd', level, ch.limit, terms[2])
end
