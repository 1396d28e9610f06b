-- Every kind of batch. What it needs is made inside this function, because what a function takes
-- from around it costs time whether or not it is called.
local FORMAT = 2                                -- of values, as they are written
local CHARGE = '<BBBBI4I4I4ddI4dI4I4Bh'
local HEAD, FIXED_PART, TTL = '<BBI2', '<I4dI4I4', '<d'
local EXACT = 9007199254740992
local LIMIT_MAX, ENTRIES_MAX, WINDOW_MAX = 1000000000, 10000, 31622400000000
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
  local n, groups, length = unpack_from(PLAN, blob, first)
  plans[p] = { n = n, at = first + length }
  if groups == 0 and length > PLAN_BYTES then plans[p].penal = first + PLAN_BYTES end
  first = first + length + n * CHARGE_BYTES
end

local values                 -- of strings and kits; '' where there is something else at the key
local found                  -- of kits and lists: what was read and what is to be written
local marks, dirty, to_write -- how to write a string, and which ones
local out, o                 -- the reply in pieces

-- The charges of a plan, each a list of its parts.
local function charges_in(plan)
  if not plan[1] then
    for i = 1, plan.n do
      plan[i] = { unpack_from(CHARGE, blob, plan.at + (i - 1) * CHARGE_BYTES) }
    end
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
