-- Every kind of batch. What it needs is made inside this function, because what a function takes
-- from around it costs time whether or not it is called.
local FORMAT = 2                                -- of values, as they are written
local CHARGE = '<BBBBI4I4I4ddI4dI4I4Bh'
local HEAD, FIXED_PART, TTL = '<BBI2', '<I4dI4I4', '<d'
local ENTRIES_MAX = 10000
local TTL_MAX = 126489600000                    -- milliseconds: four years, and no state lasts as long
local RENEWED = 1000                            -- milliseconds a key may outlive its override
local NUMBER = '^%s*[%d%.eE+-]+%s*$'
local FIXED, SLIDING, LOG, TOKEN, LEAKY, LEASES, KIT = 1, 2, 3, 4, 5, 6, 7

local KEYS, blob = KEYS, ARGV[1]
local call, try, pack, unpack_from = redis.call, redis.pcall, struct.pack, struct.unpack
local byte, sub, fmod = string.byte, string.sub, math.fmod

local now, items, plan_count, strings, kits, lists, overrides, first = unpack_from(HEADER, blob)
local given = now >= 0
if not given then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local plans = {}
for p = 1, plan_count do
  local n, groups, length, named = unpack_from(PLAN, blob, first)
  plans[p] = { n = n, at = first + length, named = named }
  if groups == 0 and length > PLAN_BYTES then plans[p].penal = first + PLAN_BYTES end
  first = first + length + n * CHARGE_BYTES + named
end

local values                 -- of strings and kits; '' where there is something else at the key
local found                  -- of kits and lists: what was read and what is to be written
local marks, dirty, to_write -- how to write a string, and which ones
local out, o                 -- the reply in pieces

-- Names the charges of a plan, and says how the values of those that share one end.
local function name_charges(plan)
  local at, first_of_run, from, bytes = plan.at + plan.n * CHARGE_BYTES, nil, nil, nil
  for i = 1, plan.n do
    local charge, length = plan[i], byte(blob, at)
    if charge[3] == 0 then first_of_run, from, bytes = i, at, 0 end
    charge.name, at, bytes = sub(blob, at, at + length), at + length + 1, bytes + length
    if bytes > 0 then plan[first_of_run].tail = sub(blob, from, at - 1) end
  end
end

-- The charges of a plan, each a list of its parts.
local function charges_in(plan)
  if not plan[1] then
    for i = 1, plan.n do
      plan[i] = { unpack_from(CHARGE, blob, plan.at + (i - 1) * CHARGE_BYTES) }
    end
    if plan.named > 0 then name_charges(plan) end
  end
  return plan
end

-- Where the time to live and the first of the b and of the moving parts are in a value of so many counters.
local function ttl_at(count) return HEAD_BYTES + (FIXED_BYTES + B_BYTES) * count + 1 end

local function b_at(count) return HEAD_BYTES + FIXED_BYTES * count + 1 end

local function moving_at(count) return HEAD_BYTES + (FIXED_BYTES + B_BYTES) * count + TTL_BYTES + 1 end

local function value_bytes(count)
  return HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES + MOVING_BYTES) * count
end
