-- Ratekeeper: a batch of rate-limit decisions in one atomic step.
--
-- The six algorithms of `ratekeeper-core`, once more; tests compare the two over
-- random histories on real servers. Runs on Redis 6.2 and later and on Valkey.
--
-- KEYS      strings (packed counters, ids), then counters of Application Kit, then
--           lists (logs, leases), then override hashes; how many of each is in the
--           header. Every key the script touches is here, each once, so a key's
--           number is its name within the batch. All of them are in one slot.
-- ARGV[1]   the batch, little-endian: a header
--             d  now in microseconds, -1 to ask the server
--             I2 items, I2 plans, I2 strings, I2 kits, I2 lists, I2 overrides
--           then the plans, of which checks that ask for the same share one: B charges, B
--           groups, I2 bytes until the charges begin, I2 bytes of names, the groups, the charges, the
--           names: for each charge B length and the name of its quota within its rule; none if no
--           quota has one. There are groups if a check can go the short way, one for each value: B
--           counters, B kind (1 token buckets, 2 a fixed window), B how many are overridable, how such a
--           value begins, and
--           for each counter I4 limit, d and I4 cost, d and I4 room, as below (of a fixed window
--           I4 limit, d window, I4 cost, d 0, I4 0). In the place of groups a plan may have penalties: B how
--           many, and for each B flags (1 shadow, 2 denials are strikes, 4 grows with offences), B the
--           first of the rule's charges, B how many those are, B sentences, I4 tags of the gate, the
--           strikes and the offences, I4 limit and d window of the strikes, of the offences I4 limit,
--           d window, d and I4 what one adds to the debt, d and I4 the debt there is room for, and d the
--           length of each sentence. Then the items, each of which begins with a byte that says what
--           it is:
--             0  check    I2 plan, the keys
--             1  peek     the same; writes nothing
--             2  once     I2 plan, the keys, B peek, I2 id key, I2 argument with what to
--                         keep, d keep and d hold in microseconds (hold -1: none), c8 digest
--             3  adjust   I2 charges, I2 id key (0: none), c8 digest, and for each charge
--                         B kind (0 refund, 1 top up), d and I4 receipt, I2 key, the key where it
--                         is noted what a receipt gave back (I2, 0: nowhere), I4 the cost in all and d
--                         until when the receipt is good, the charge
--             4  reset    I2 algorithm, I2 key, I4 tag
--             5  penal    I2 plan with penalties, B what it is (0 check, 1 peek, 2 once), the keys, I2
--                         for each penalty the key of its counters, and what a `once` has
--           The keys of a check: for each charge that does not share the value of the one
--           before it I2 its counter, and for each that is overridable I2 the project's and
--           I2 the organisation's override (0: none).
--           A charge is B algorithm, B flags, B place in its key's value, B records that
--           value should have (0: look), I4 tag, I4 cost, I4 limit, d window, d and I4 what the
--           cost adds to a bucket's debt, d and I4 the debt a bucket has room for (of a log and leases d the
--           window of rule or plan, whatever an override's is, I4 0), I4 burst or queue, B calendar unit (6:
--           multiples of the window), h minutes east of UTC. Flags: 1 shadow, 2 overridable, 4 lifted,
--           8 blocked, 16 windows by the clock, 32 a bucket without a rate: its limit is 0, 64 one counter for
--           all windows.
-- ARGV[2..] what `once` items keep beside their answer, opaque to the script.
-- Reply     one string: d now, and an answer for each item that begins with its status
--             1 allowed, 2 denied: for each charge what was found, so that the caller
--               can work out the rest: 7 or 8 (d limit, d window or -1): an override of
--               the project or organisation applies; then 0: nothing, 1: see the charge
--               before, 2 (I2 length): the value, 3: a log or leases boiled down to what
--               decides, 4 (d count, d milliseconds left): a counter of Application Kit. Of a
--               `penal` then d the instant it was judged at, B whether strikes are counted (0: the
--               server does not write), and for each penalty what was found (0, 2, or 1: the value
--               before) and B what came of it: 0 nothing, 1 its gate denies, 2 a strike, 3 the
--               strike that shut the gate, 4 one that would have if it were not shut already
--             3 repeated (I4 length): the whole record of the id    4 id of another check
--             5 unreadable (I2 key)    6 a window too many of a quota and key
--             7 not written (B length): the server's reason    8 a counter too many of a rule and key
--             10 done (for each charge I4 the units given back)  11 settled before  12 lapsed  13 unknown
--             14 something counted  15 nothing did
--
-- Times are whole microseconds. Numbers are doubles that hold integers below 2^53; where
-- a product would be larger, it is divided digit by digit. Rounding is against the caller, but for sliding windows.
--
-- States are judged by the instants in them. The time to live is only garbage collection:
-- it is kept in the value too, and renewed when the state would outlive it, because
-- renewing it with every hit would cost as much as all the rest.

local function general()
-- The layouts that both ways read and write. A unit test compares them with the library's.
-- luacheck: push ignore 211
local HEADER = '<dI2I2I2I2I2I2'                 -- of a batch
local PLAN, PLAN_BYTES = '<BBI2I2', 6           -- then its groups or penalties, its charges, its names
local GROUP_BYTES = 3
local TERMS, TERMS_BYTES = '<I4dI4dI4', 28
local CHARGE_BYTES = 55
-- A value: B format, B counters, I2 bytes at its end; for each counter I4 tag, d window, I4 limit, I4 burst, which
-- seldom change, and d b for each; d the end of the time to live; for each counter d a, I4 c.
-- What a, b and c are is with the algorithms. Limit and burst are those of the last charge. At the end are the
-- names of the quotas within their rule, for each counter B length and the name; nothing if no quota has one.
local HEAD_BYTES, FIXED_BYTES, TTL_BYTES, B_BYTES, MOVING_BYTES = 4, 20, 8, 8, 12
local MOVING_PART, NUMBER_PART = '<dI4', '<d'
local SLACK_MIN, SLACK_MAX = 1000000, 60000000  -- what a key lives beyond its state, in microseconds
local TEST_TTL = 60000                          -- milliseconds a key lives at least if `now` is given
-- luacheck: pop
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
-- Writing: how long keys live, which values have changed, what the server refuses.

-- A time to live for a state that lasts until `last`, with slack so that it need not be
-- renewed with every hit.
local function ttl_until(last)
  local left = last - now
  return last + (left < SLACK_MIN and SLACK_MIN or left > SLACK_MAX and SLACK_MAX or left)
end

local function px(ttl)
  local left = ttl - now
  local millis = (left - left % 1000) / 1000 + 1
  -- No server takes a time that is none, and after a first write none may be refused.
  if not (millis <= TTL_MAX) then millis = TTL_MAX end
  local least = given and TEST_TTL or 1 -- also for what is over: no server takes less
  return millis < least and least or millis
end

-- Ways to write a string.
local IN_PLACE, ANEW = 1, 2

local function mark(k, how)
  local known = marks[k]
  if not known then
    to_write = to_write + 1
    dirty[to_write] = k
    marks[k] = how
  elseif how > known then
    marks[k] = how
  end
end

-- The first write may be refused (memory, a replica, a disk that is full); nothing has
-- happened then. Once one has passed, the server refuses none of the others.
local refused, written
local function write(...)
  if refused then return end
  if written then return call(...) end
  local reply = try(...)
  if type(reply) == 'table' and reply.err then
    refused = reply.err
  else
    written = true
  end
  return reply
end

-- What is at a key; an error only if that is of another type. Anything else that a server
-- may object to (its user must not read) is not the key's fault and ends the batch.
local function look(...)
  local reply = try(...)
  if type(reply) == 'table' and reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true) then
    return call(...)
  end
  return reply
end
-- Arithmetic in whole numbers below 2^53.

-- a * b / c as quotient and rest, for b <= c or a * b / c within 2^53.
local function muldivmod(a, b, c)
  local product = a * b
  if product < EXACT then
    local rest = fmod(product, c)
    return (product - rest) / c, rest
  end
  local low = fmod(b, c)
  local quotient, rest = 0, 0
  for shift = 4, 0, -1 do -- five digits of base 128: every sum stays below 2^53
    local scaled = a / 128 ^ shift
    local digit = (scaled - scaled % 1) % 128
    local sum = rest * 128 + digit * low
    rest = fmod(sum, c)
    quotient = quotient * 128 + (sum - rest) / c
  end
  return quotient + a * ((b - low) / c), rest
end

local function muldiv_up(a, b, c)
  local quotient, rest = muldivmod(a, b, c)
  return rest > 0 and quotient + 1 or quotient
end

-- `units` times window / limit.
local function span(units, window, limit)
  local rest = fmod(window, limit)
  local more, part = muldivmod(units, rest, limit)
  return units * ((window - rest) / limit) + more, part
end

-- Whether a stored number can be an instant, or a length: a server's memory can hold any, also none at all (NaN).
local function is_instant(number) return number >= 0 and number < EXACT and number % 1 == 0 end

local function is_length(number) return number >= 0 and number <= WINDOW_MAX and number % 1 == 0 end

local function whole(text)
  local number = string.find(text, '^%d+$') and #text <= 16 and tonumber(text)
  return number and number < EXACT and number or nil
end
-- Token and leaky buckets. a: the instant it is full again, c / e: and a fraction of a microsecond, where e is
-- the limit of the last charge; b: how far ahead of the clock it may be.

-- What a bucket owes under a limit, in microseconds and parts of one.
local function bucket_debt(a, c, e, at, limit)
  local debt, rest = a - at, c
  if debt < 0 then return 0, 0 end
  if rest > 0 and e ~= limit then
    rest = muldiv_up(limit, rest, e)
    if rest >= limit then return debt + 1, rest - limit end
  end
  return debt, rest
end

-- Debts add up, and are compared, as numbers of two digits.
local function bucket_sum(debt, rest, more, part, limit)
  if rest + part >= limit then return debt + more + 1, rest + part - limit end
  return debt + more, rest + part
end

local function less(am, ar, bm, br) return am < bm or am == bm and ar < br end

-- How far ahead a bucket may be after a charge that takes it up to `full` and `part` at most: whole milliseconds.
local function bucket_ahead(b, debt, rest, full, part)
  if part > 0 then full = full + 1 end
  full = full + (1000 - full % 1000) % 1000
  if debt == 0 and rest == 0 or b < full then return full end
  return b
end

local function bucket_step(alg, a, b, c, e, at, cost, limit, window, cm, cr, rm, rr)
  if a - at > b + window then return 2 end
  local debt, rest = bucket_debt(a, c, e, at, limit)
  local owed, part = bucket_sum(debt, rest, cm, cr, limit)
  if alg == TOKEN then
    if less(rm, rr, owed, part) then return 1 end
  elseif cost > limit or less(rm, rr, debt, rest) then
    return 1
  end
  local full = alg == TOKEN and rm or rm + window
  return 0, at + owed, bucket_ahead(b, debt, rest, full, rr), part, limit
end
-- Fixed windows. a: end, b: length, c: count.

-- The window that begins at an instant, or the calendar's around it: its end and its length.
local function fixed_window_at(at, window, calendar)
  if not calendar then return at + window, window end
  local from, to = calendar(at, window)
  return to, to - from
end

local function fixed_step(a, b, c, at, cost, limit, window, calendar)
  if a - b > at then return 2 end
  if at >= a then
    a, b = fixed_window_at(at, window, calendar)
    c = 0
  end
  if c + cost > limit then return 1 end
  return 0, a, b, c + cost, 0
end
-- Sliding windows. a: start, b: window, c: in the window before, e: in this one, which is kept as b.

-- The state at an instant that is not before it: a new window begins where the last one ends.
local function sliding_roll(a, c, e, window, at)
  if c + e == 0 then return at, 0, 0 end
  if at - a < window then return a, c, e end
  if e > 0 and at - a < 2 * window then return a + window, e, 0 end
  return at, 0, 0
end

local function sliding_step(a, b, c, e, at, cost, limit, window)
  if c + e > 0 and (b ~= window or a > at) then return 2 end
  a, c, e = sliding_roll(a, c, e, window, at)
  local faded = c > 0 and muldivmod(c, window - (at - a), window) or 0
  if faded + e + cost > limit then return 1 end
  return 0, a, window, c, e + cost
end
-- What an algorithm does with a state and a cost that may be charged: 0 and the state after
-- it, 1 if there is no room, 2 if this clock and quota could not have made the state.
local function step(alg, a, b, c, e, at, cost, limit, window, cm, cr, rm, rr, calendar)
  if alg == FIXED then return fixed_step(a, b, c, at, cost, limit, window, calendar) end
  if alg == SLIDING then return sliding_step(a, b, c, e, at, cost, limit, window) end
  return bucket_step(alg, a, b, c, e, at, cost, limit, window, cm, cr, rm, rr)
end

-- Whether some history could have made the numbers of a stored state.
local function is_sound(alg, a, b, c, e)
  if not is_instant(a) then return false end
  if alg == TOKEN or alg == LEAKY then return is_instant(b) and (c == 0 or c < e) end
  return is_length(b)
end

-- From when on a state says no more than none.
local function expiry(alg, a, b, c, e)
  if alg == TOKEN or alg == LEAKY then return c > 0 and a + 1 or a end
  if alg == FIXED then return a end
  if e > 0 then return a + 2 * b end
  return c > 0 and a + b or 0
end
-- Overrides: other terms for a project or an organisation.

local any_override = overrides > 0
    and call('EXISTS', unpack(KEYS, strings + kits + lists + 1, strings + kits + lists + overrides)) > 0

-- Puts the terms of an override in a charge, cut to what its algorithm can count; false if
-- that closes a bucket, whose sums need a rate.
local function override(ch, limit, window)
  if (ch.alg == LOG or ch.alg == LEASES) and limit > ENTRIES_MAX then limit = ENTRIES_MAX end
  if window < 0 then window = ch.window elseif not ch.aligned then ch.calendar = nil end
  if limit == 0 then
    ch.limit, ch.window, ch.closed = 0, window, ch.alg == TOKEN or ch.alg == LEAKY
    return not ch.closed
  end
  if ch.alg == TOKEN then
    local burst = ch.closed and limit or muldivmod(ch.extra, limit, ch.limit)
    ch.extra = burst < 1 and 1 or burst > LIMIT_MAX and LIMIT_MAX or burst
  elseif ch.alg ~= LEAKY then
    ch.extra = limit
  end
  ch.limit, ch.window, ch.closed = limit, window, false
  if ch.alg == TOKEN or ch.alg == LEAKY then
    ch.rm, ch.rr = span(ch.extra, window, limit)
    if ch.rm > WINDOW_MAX or ch.rm == WINDOW_MAX and ch.rr > 0 then -- years to refill
      ch.extra = muldivmod(limit, WINDOW_MAX, window)
      ch.rm, ch.rr = span(ch.extra, window, limit)
    end
    ch.cm, ch.cr = span(ch.cost, window, limit)
  end
  return true
end

local hashes = {}

-- The override in a hash: nothing, or limit (false: none), window (-1: none) and end (false: none);
-- false if it cannot be read. Numbers are what Application Kit's script takes for such; whoever
-- wrote them knew no bounds, so what is beyond one means it.
local function override_in(k)
  if k == 0 or not any_override then return nil end
  local hash = hashes[k]
  if hash == nil then
    local fields = look('HMGET', KEYS[k], 'max_requests', 'expiry', 'window_ms', 'expires_at')
    local limit, seconds, ends, window = fields[1], fields[2], fields[4], -1
    if limit then limit = string.find(limit, NUMBER) and tonumber(limit) end
    if seconds then seconds = string.find(seconds, NUMBER) and tonumber(seconds) end
    if ends then ends = whole(ends) end
    if limit == nil or seconds == nil or ends == nil then -- also if it is not a hash
      hash = false
    elseif not limit and not seconds then
      hash = 'none'
    else
      if limit then limit = limit < 0 and 0 or limit > LIMIT_MAX and LIMIT_MAX or limit - limit % 1 end
      if seconds then
        local millis = seconds * 1000 + 0.5
        -- Ours, to the millisecond; not if others have set another window since.
        local exact = fields[3] and whole(fields[3])
        if exact and seconds == (exact + (1000 - exact % 1000) % 1000) / 1000 then millis = exact end
        window = millis * 1000 > WINDOW_MAX and WINDOW_MAX or millis < 1 and 1000 or (millis - millis % 1) * 1000
      end
      if ends and now >= ends and not given then
        -- The key ends with what we put in it. If it lives on, others have set it anew.
        local left = call('PTTL', KEYS[k])
        ends = left >= 0 and left <= RENEWED and ends
      end
      hash = { limit, window, ends }
    end
    hashes[k] = hash
  end
  if hash == 'none' then return nil end
  if not hash then return false end
  if hash[3] and now >= hash[3] then return nil end
  return hash
end

-- The override that applies, the project's before the organisation's, and whose it is.
local function override_for(project, organisation)
  local hash = override_in(project)
  if hash ~= nil then return hash, 7, project end
  return override_in(organisation), 8, organisation
end
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
-- The ordinary way, for other common checks: counters in packed strings, in order and well, and
-- those of Application Kit.

local state = {}            -- what a value is packed of
local pending = 0           -- what is written if nothing denies: a value, or the cost of a kit
local pending_keys, pending_values, pending_marks, pending_costs = {}, {}, {}, {}

-- The terms of a charge after its override, which is told; nothing if another way must see to it.
local function ordinary_terms(charge, pos)
  local limit, window, cm, cr, rm, rr = charge[7], charge[8], charge[9], charge[10], charge[11], charge[12]
  if charge[2] > 1 and any_override then
    local project, organisation = unpack_from('<I2I2', blob, pos)
    local terms, level = override_for(project, organisation)
    if terms == false then return nil end
    if terms then
      local ch = { alg = charge[1], cost = charge[6], limit = limit, window = window, extra = charge[13],
                   cm = cm, cr = cr, rm = rm, rr = rr }
      if not override(ch, terms[1] or limit, terms[2]) then return nil end
      o = o + 1
      out[o] = pack('<Bdd', level, ch.limit, terms[2])
      return ch.limit, ch.window, ch.cm, ch.cr, ch.rm, ch.rr, ch.extra
    end
  end
  return limit, window, cm, cr, rm, rr, charge[13]
end

-- Whether a counter of Application Kit has room; nothing if another way must see to it.
local function ordinary_kit(k, cost, limit, window)
  local kit = kit_at(k)
  if not kit or kit.left < 0 then return nil end
  o = o + 1
  out[o] = pack('<Bdd', 4, kit.count, kit.left)
  if kit.count + cost > limit then return false end
  pending = pending + 1
  pending_keys[pending], pending_values[pending], pending_costs[pending] = kit, window, cost
  return true
end

-- Tells the value at a key, which ends with the names of its quotas; false if another way must see to it.
local function ordinary_value(value, size, tail)
  if not value then
    o = o + 1
    out[o] = '\0'
    return true
  end
  local format, count, low, high = byte(value, 1, 4)
  if #value ~= value_bytes(size) + #tail or format ~= FORMAT or count ~= size or low + 256 * high ~= #tail then
    return false
  end
  out[o + 1], out[o + 2] = pack('<BI2', 2, #value), value
  o = o + 2
  return true
end

-- Notes the value that `state` makes, which lasts until `last`.
local function ordinary_write(k, value, size, last, tail)
  local how, ttl = IN_PLACE, value and unpack_from(TTL, value, ttl_at(size)) or 0
  if not value or not (last <= ttl) then how, ttl = ANEW, ttl_until(last) end
  state[1], state[2], state[3], state[4 + 5 * size] = FORMAT, size, #tail, ttl
  local format = size == 1 and '<BBI2I4dI4I4dddI4'
      or '<BBI2' .. string.rep('I4dI4I4', size) .. string.rep('d', size + 1) .. string.rep('dI4', size)
  pending = pending + 1
  pending_keys[pending], pending_marks[pending], pending_costs[pending] = k, how, nil
  pending_values[pending] = pack(format, unpack(state, 1, 4 + 7 * size)) .. tail
end

-- Whether a counter of a value has room, and until when it lasts; nothing if another way must see to it.
local function ordinary_packed(charge, value, limit, burst, window, cm, cr, rm, rr)
  local alg, place, size, tag = charge[1], charge[3], charge[4], charge[5]
  local a, b, c, e, was_limit, was_burst = 0, 0, 0, 0, limit, burst
  if value then
    local known, of
    known, of, was_limit, was_burst = unpack_from(FIXED_PART, value, HEAD_BYTES + FIXED_BYTES * place + 1)
    if known ~= tag or of ~= window then return nil end
    b = unpack_from(NUMBER_PART, value, b_at(size) + B_BYTES * place)
    a, c = unpack_from(MOVING_PART, value, moving_at(size) + MOVING_BYTES * place)
    if alg == SLIDING then b, e = window, b else e = was_limit end
    if not is_sound(alg, a, b, c, e) then return nil end
  end
  local verdict, na, nb, nc, ne = step(alg, a, b, c, e, now, charge[6], limit, window, cm, cr, rm, rr)
  if verdict == 2 then return nil end
  if verdict == 1 then na, nb, nc, ne, limit, burst = a, b, c, e, was_limit, was_burst end
  local fixed, moving = 4 + 4 * place, 5 + 5 * size + 2 * place
  state[fixed], state[fixed + 1], state[fixed + 2], state[fixed + 3] = tag, window, limit, burst
  state[4 + 4 * size + place] = alg == SLIDING and ne or nb
  state[moving], state[moving + 1] = na, nc
  return verdict == 0, expiry(alg, na, nb, nc, ne)
end

local function ordinary_charged()
  for i = 1, pending do
    local key = pending_keys[i]
    if pending_costs[i] then
      charge_kit(key, pending_values[i], pending_costs[i])
    else
      values[key] = pending_values[i]
      mark(key, pending_marks[i])
    end
  end
end

-- Judges a check. Returns where the next item begins, or nothing if another way must see to it.
local function ordinary(plan, pos)
  charges_in(plan)
  local begin, denied, k, value, last, tail = o + 1, false, nil, nil, 0, ''
  o, pending = begin, 0
  for i = 1, plan.n do
    local charge = plan[i]
    local alg, flags, place, size, cost = charge[1], charge[2], charge[3], charge[4], charge[6]
    if flags > 3 or place >= size or cost == 0 or alg == LOG or alg == LEASES then return nil end
    if place == 0 then
      k, pos = unpack_from('<I2', blob, pos)
      value, last, tail = values[k], 0, charge.tail or ''
    end
    local limit, window, cm, cr, rm, rr, burst = ordinary_terms(charge, pos)
    if not limit then return nil end
    if flags > 1 then pos = pos + 4 end
    local has_room, ends
    if alg == KIT then
      has_room = ordinary_kit(k, cost, limit, window)
    else
      if place > 0 then
        o = o + 1
        out[o] = value and '\1' or '\0'
      elseif not ordinary_value(value, size, tail) then
        return nil
      end
      has_room, ends = ordinary_packed(charge, value, limit, burst, window, cm, cr, rm, rr)
    end
    if has_room == nil then return nil end
    if not has_room and flags % 2 == 0 then denied = true end
    if ends then
      if ends > last then last = ends end
      if place + 1 == size and not denied then ordinary_write(k, value, size, last, tail) end
    end
  end
  if not denied then ordinary_charged() end
  out[begin] = denied and '\2' or '\1'
  return pos
end

-- What is left: clocks that step, quotas that change, logs and leases, ids, refunds. Made only
-- when it is needed, because making functions takes time.
local function prepare_careful()
-- Windows that begin on the calendar, in integer civil-date arithmetic.

local DAY = 86400000000

local function floor_div(x, y)
  local rest = fmod(x, y)
  if rest < 0 then rest = rest + y end
  return (x - rest) / y
end

-- Days from the epoch to the first of a month; years are counted from March.
local function days_from_civil(year, month)
  if month <= 2 then year = year - 1 end
  local era = floor_div(year, 400)
  local of_era = year - era * 400
  local of_year = floor_div(153 * ((month + 9) % 12) + 2, 5)
  return era * 146097 + of_era * 365 + floor_div(of_era, 4) - floor_div(of_era, 100) + of_year - 719468
end

local function month_around(at)
  local days = floor_div(at, DAY) + 719468
  local era = floor_div(days, 146097)
  local of_era = days - era * 146097
  local year = floor_div(of_era - floor_div(of_era, 1460) + floor_div(of_era, 36524) - floor_div(of_era, 146096), 365)
  local of_year = of_era - (365 * year + floor_div(year, 4) - floor_div(year, 100))
  local month = floor_div(5 * of_year + 2, 153)
  month = month < 10 and month + 3 or month - 9
  year = year + era * 400 + (month <= 2 and 1 or 0)
  local from = days_from_civil(year, month) * DAY
  if month == 12 then return from, days_from_civil(year + 1, 1) * DAY end
  return from, days_from_civil(year, month + 1) * DAY
end

-- The multiple of a window around an instant.
local function aligned(at, window)
  local from = at - fmod(at, window)
  return from, from + window
end

-- The window of a calendar unit (1 minute, 2 hour, 3 day, 4 week, 5 month) around an instant.
local function calendar_of(unit, minutes)
  local offset = minutes * 60000000
  return function(at)
    local from, to
    if unit == 5 then
      from, to = month_around(at + offset)
    else
      local length = unit == 1 and 60000000 or unit == 2 and 3600000000 or unit == 3 and DAY or 7 * DAY
      local phase = unit == 4 and 4 * DAY or 0 -- the epoch was a Thursday
      from = floor_div(at + offset - phase, length) * length + phase
      to = from + length
    end
    from, to = from - offset, to - offset
    return from > 0 and from or 0, to > 0 and to or 0
  end
end
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
-- Lists: logs and holders of leases, each a list of the server. Its first element is an index of the others: blocks of
-- up to 100 entries (instant, units; of a holder its number, too), oldest first. So a check reads the index and at most
-- two blocks, and what has expired goes by blocks. A block stays at its place; places of blocks that went are used
-- again.
--
-- The index: B format, B algorithm, B lists, B 0, d the end of the time to live, I2 places, I2 free ones. Then the
-- lists, one for each window of rule or plan: d that window, d how long entries are kept, d the newest instant at which
-- a place was taken (of leases), d what to take off all instants since the clock stepped back, d the instant before
-- which all is gone, d the first entry that is not (0: look; there may be none so old any more), d the units before it
-- in the first block, d the units of all blocks, I4 the next holder's number, I2 blocks; and of each block I2 its
-- place, I4 the number of its last holder, I2 entries, d units, d the instant of its last entry. At the end the free
-- places, I2 each.
local INDEX, INDEX_BYTES = '<BBBBdI2I2', 16
local LIST, LIST_BYTES = '<ddddddddI4I2', 70
local BLOCK, BLOCK_BYTES = '<I2I4I2dd', 24
local NUMBER_AT, UNITS_AT, LAST_AT = 3, 9, 17 -- in what the index has of a block
local ENTRY, ENTRY_BYTES = '<dI4', 12
local HOLDER, HOLDER_BYTES = '<dI4I4', 16
-- Two neighbours have more entries than fit one block, so that all of them have more than any limit has units.
local BLOCK_MAX, BLOCKS_MAX = 100, 256
local NUMBERS = 4294967296

local function new_list(family, own)
  local list = { family = family, own = own, window = 0, newest = 0, shift = 0, since = 0, first = 0, gone = 0,
                 units = 0, next = 0, blocks = 0, index = '', cache = {} }
  family.n = family.n + 1
  family[family.n] = list
  return list
end

local function is_sound_list(list)
  return is_length(list.own) and is_length(list.window) and is_instant(list.newest) and is_instant(list.shift)
      and is_instant(list.since) and is_instant(list.first) and is_instant(list.gone) and is_instant(list.units)
      and list.blocks <= BLOCKS_MAX and #list.index == list.blocks * BLOCK_BYTES
      and (list.blocks > 0 or list.units == 0)
end

-- All lists of a key; nothing if they cannot be read.
local function list_at(k, alg)
  local family = found[k]
  if family then return family end
  local index = look('LINDEX', KEYS[k], '0')
  if type(index) == 'table' then return nil end
  family = { k = k, alg = alg, n = 0, ttl = 0, places = 0, stored = 0, free = '', dirty = {} }
  if index then
    if #index < INDEX_BYTES or not READABLE[byte(index)] or byte(index, 2) ~= alg then return nil end
    local _, count, free
    _, _, count, _, family.ttl, family.places, free = unpack_from(INDEX, index)
    local pos = INDEX_BYTES + 1
    for _ = 1, count do
      if #index < pos + LIST_BYTES - 1 then return nil end
      local list = new_list(family, 0)
      list.own, list.window, list.newest, list.shift, list.since, list.first, list.gone, list.units, list.next,
        list.blocks, pos = unpack_from(LIST, index, pos)
      list.index = sub(index, pos, pos + list.blocks * BLOCK_BYTES - 1)
      pos = pos + list.blocks * BLOCK_BYTES
      if not is_sound_list(list) then return nil end
    end
    family.free = sub(index, pos)
    -- After a first write nothing may fail, so all places must be there.
    if #family.free ~= 2 * free or call('LLEN', KEYS[k]) ~= family.places + 1 then return nil end
    family.exists, family.stored = true, family.places
  end
  found[k] = family
  return family
end

-- The list of a charge: that of the window of its rule or plan.
local function list_of(ch)
  local family = ch.list
  for i = 1, family.n do
    if family[i].own == ch.rm then return family[i] end
  end
  return new_list(family, ch.rm)
end

local function last_in(list) return list.blocks > 0 and unpack_from('<d', list.index, #list.index - 7) or 0 end

-- The newest instant that counts for the clock, as it is stored.
local function newest_in(list) return list.family.alg == LEASES and list.newest or last_in(list) end

-- From when on a list says no more than none.
local function list_expiry(list, shift)
  if list.window == 0 or list.family.alg == LOG and list.blocks == 0 then return 0 end
  return newest_in(list) - shift + list.window
end

-- What to take off all instants: more, if the clock has stepped back by more than a window.
local function shift_at(list, at)
  local ahead = newest_in(list) - list.shift - at
  return ahead > list.window and list.shift + ahead or list.shift
end

-- The first block that ends later than an instant.
local function first_after(list, instant)
  local low, high = 1, list.blocks + 1
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    if unpack_from('<d', list.index, (middle - 1) * BLOCK_BYTES + LAST_AT) > instant then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function units_in(list, i)
  local units = unpack_from('<d', list.index, (i - 1) * BLOCK_BYTES + UNITS_AT)
  return units
end

-- The i-th block as it is stored; nothing if it is not what the index says.
local function block_of(list, i)
  local id, _, count = unpack_from(BLOCK, list.index, (i - 1) * BLOCK_BYTES + 1)
  local block = list.cache[id]
  if block then return block end
  local text = call('LINDEX', KEYS[list.family.k], id .. '')
  local bytes = list.family.alg == LEASES and HOLDER_BYTES or ENTRY_BYTES
  if not text or count < 1 or count > BLOCK_MAX or #text ~= count * bytes then return nil end
  block = { id = id, text = text, n = count }
  list.cache[id] = block
  return block
end

-- The i-th block with its entries; nothing if they are not what the index says.
local function entries_of(list, i)
  local block = block_of(list, i)
  if not block or block.at then return block end
  local format, bytes, has_number = ENTRY, ENTRY_BYTES, list.family.alg == LEASES
  if has_number then format, bytes = HOLDER, HOLDER_BYTES end
  local ats, all, numbers, text, before, sum = {}, {}, {}, block.text, 0, 0
  for j = 1, block.n do
    local at, units, number = unpack_from(format, text, (j - 1) * bytes + 1)
    if not (at >= before and is_instant(at) and units > 0) then return nil end
    ats[j], all[j] = at, units
    if has_number then numbers[j] = number end
    before, sum = at, sum + units
  end
  local _, _, _, units, last = unpack_from(BLOCK, list.index, (i - 1) * BLOCK_BYTES + 1)
  if sum ~= units or before ~= last then return nil end
  block.at, block.units, block.number = ats, all, numbers
  return block
end

-- The units that count, behind which instant those are, the block of the first and the units in it that do not count.
-- Nothing if the blocks cannot be read, or are not what the index says.
local function live(list, window, at, shift)
  if list_expiry(list, shift) <= at or list.blocks == 0 then return 0 end
  local ends = at + shift - window
  if ends < list.since then ends = list.since - 1 end
  if list.first > ends then return list.units - list.gone, ends, 1, list.gone end
  local b, left = first_after(list, ends), list.units
  for i = 1, b - 1 do left = left - units_in(list, i) end
  if b > list.blocks then
    if left ~= 0 then return nil end
    return 0
  end
  local block, i, gone = entries_of(list, b), 1, 0
  if not block then return nil end
  while block.at[i] <= ends do
    gone = gone + block.units[i]
    i = i + 1
  end
  if not (left - gone > 0) then return nil end
  return left - gone, ends, b, gone
end

-- What the caller needs of a list: at most two entries that answer as all of them would. Nothing if the blocks are not
-- what the index says.
local function boiled_down(list, limit, cost, shift, used, ends, b, gone)
  local function instant(at) return at > shift and at - shift or 0 end
  local newest, last = instant(newest_in(list)), instant(last_in(list))
  local head = pack('<BddI4', 3, list.window, newest, list.next)
  local function entry(at, units) return pack('<dI4', at, units > U32_MAX and U32_MAX or units) end
  -- The newest instant of a log counts even if none of its entries does.
  if used == 0 then return list.blocks == 0 and head .. '\0' or head .. '\1' .. entry(last, 0) end
  if used + cost <= limit or cost > limit then return head .. '\1' .. entry(last, used) end
  local left, here = used, units_in(list, b) - gone
  while left - here + cost > limit do
    left, b = left - here, b + 1
    if b > list.blocks then return nil end
    here = units_in(list, b)
  end
  local block, i = entries_of(list, b), 1
  if not block then return nil end
  while block.at[i] and block.at[i] <= ends do i = i + 1 end
  while block.at[i] do
    left = left - block.units[i]
    if left + cost <= limit then
      local at = instant(block.at[i])
      if left == 0 then return head .. '\1' .. entry(at, used) end
      return head .. '\2' .. entry(at, used - left) .. entry(last, left)
    end
    i = i + 1
  end
end
-- Blocks of lists that change. Nothing is written before every item of the batch is judged.

local function set_block(list, i, id, number, count, units, last)
  local from = (i - 1) * BLOCK_BYTES
  list.index = sub(list.index, 1, from) .. pack(BLOCK, id, number, count, units, last)
      .. sub(list.index, from + BLOCK_BYTES + 1)
end

local function touch(list, block)
  list.family.dirty[block.id], list.family.changed = block, true
end

-- Takes n blocks out of the index, from the i-th on. Their places are free.
local function drop_blocks(list, i, n)
  if n == 0 then return end
  local family, from, free = list.family, (i - 1) * BLOCK_BYTES, { list.family.free }
  for j = 1, n do
    local id, _, _, units = unpack_from(BLOCK, list.index, from + (j - 1) * BLOCK_BYTES + 1)
    list.units, list.cache[id], family.dirty[id] = list.units - units, nil, nil
    free[j + 1] = pack('<I2', id)
  end
  list.index = sub(list.index, 1, from) .. sub(list.index, from + n * BLOCK_BYTES + 1)
  list.blocks, family.free, family.changed = list.blocks - n, concat(free), true
  if i == 1 then list.first, list.gone = 0, 0 end
end

-- A place for a new block: one that was used before, or behind the last.
local function free_place(family)
  local free = family.free
  if free == '' then
    family.places = family.places + 1
    return family.places
  end
  family.free = sub(free, 1, -3)
  local place = unpack_from('<I2', free, #free - 1)
  return place
end

-- Forgets what has expired.
local function begin_anew(list, at)
  if list_expiry(list, list.shift) > at then return end
  drop_blocks(list, 1, list.blocks)
  list.window, list.newest, list.shift, list.since, list.first, list.gone, list.units = 0, 0, 0, 0, 0, 0, 0
  list.next = fmod(at, NUMBERS) -- so that a receipt from an earlier life names nobody in this one
end

-- Lets go what is older than entries are kept.
local function trim(list, at)
  local ends = at + list.shift - list.window
  if ends < list.since then return end
  list.since = ends + 1
  if list.first > ends then return end
  drop_blocks(list, 1, first_after(list, ends) - 1)
  list.first, list.gone = 0, 0
  local id = list.blocks > 0 and unpack_from('<I2', list.index)
  local block = id and list.cache[id]
  if not block or not block.at then return end
  local i = 1
  while block.at[i] <= ends do
    list.gone = list.gone + block.units[i]
    i = i + 1
  end
  list.first = block.at[i]
end

-- Puts an entry behind the last.
local function append(list, at, units, number)
  local n, block, id, _, count, total = list.blocks
  if n > 0 then id, _, count, total = unpack_from(BLOCK, list.index, (n - 1) * BLOCK_BYTES + 1) end
  if n == 0 or count >= BLOCK_MAX then
    if n == BLOCKS_MAX then -- what is left has as many units as any limit
      local oldest = unpack_from('<d', list.index, LAST_AT)
      list.since = oldest + 1
      drop_blocks(list, 1, 1)
    end
    id, count, total = free_place(list.family), 0, 0
    list.index, list.blocks = list.index .. string.rep('\0', BLOCK_BYTES), list.blocks + 1
    block = { id = id, text = '', n = 0, at = {}, units = {}, number = {} }
    list.cache[id] = block
  else
    block = block_of(list, n)
  end
  count = count + 1
  block.n = count
  block.text = block.text .. (number and pack(HOLDER, at, units, number) or pack(ENTRY, at, units))
  if block.at then block.at[count], block.units[count], block.number[count] = at, units, number end
  set_block(list, list.blocks, id, number or 0, count, total + units, at)
  if list.units == 0 then list.first, list.gone = at, 0 end
  list.units = list.units + units
  touch(list, block)
end

-- Puts two neighbours into one block, if they fit and can be read.
local function join(list, i)
  if i < 1 or i >= list.blocks then return false end
  local id, _, count, units = unpack_from(BLOCK, list.index, (i - 1) * BLOCK_BYTES + 1)
  local _, number, more, others, last = unpack_from(BLOCK, list.index, i * BLOCK_BYTES + 1)
  if count + more > BLOCK_MAX then return false end
  local block, next_block = block_of(list, i), block_of(list, i + 1)
  if not block or not next_block then return false end
  block.text, block.n, block.at = block.text .. next_block.text, count + more, nil
  drop_blocks(list, i + 1, 1)
  list.units = list.units + others
  set_block(list, i, id, number, count + more, units + others, last)
  touch(list, block)
  return true
end

-- Takes units from an entry; it goes with the last of them.
local function take_from(list, i, block, j, units)
  local bytes = list.family.alg == LEASES and HOLDER_BYTES or ENTRY_BYTES
  local left, at, number = block.units[j] - units, block.at[j], block.number[j]
  local changed = ''
  if left > 0 then
    changed = number and pack(HOLDER, at, left, number) or pack(ENTRY, at, left)
    block.units[j] = left
  else
    table.remove(block.at, j)
    table.remove(block.units, j)
    table.remove(block.number, j)
    block.n = block.n - 1
  end
  block.text = sub(block.text, 1, (j - 1) * bytes) .. changed .. sub(block.text, j * bytes + 1)
  local n = block.n
  -- What is left in it may all be gone already.
  if n == 0 or block.at[n] < list.since then return drop_blocks(list, i, 1) end
  local total = units_in(list, i)
  set_block(list, i, block.id, block.number[n] or 0, n, total - units, block.at[n])
  list.units = list.units - units
  touch(list, block)
  if left == 0 and not join(list, i) then join(list, i - 1) end
end
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
-- Leases: an entry for each holder, in the order of their numbers.

local function lease(list, at, units)
  local instant, number = at + list.shift, list.next
  if instant < list.newest then instant = list.newest end -- the clock is behind: the order stands
  list.next = fmod(number + 1, NUMBERS)
  list.newest = instant
  append(list, instant, units, number)
end

-- How many holders came since one with this number.
local function age_of(list, number) return fmod(list.next - number - 1 + NUMBERS, NUMBERS) end

-- The holder that a receipt names: its block and its place there. Nothing if there is none; false if the block cannot
-- be read.
local function holder_of(list, ch, at)
  if ch.receipt <= at or list_expiry(list, list.shift) <= at then return nil end
  local age, low, high = age_of(list, ch.detail), 1, list.blocks + 1
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local last = unpack_from('<I4', list.index, (middle - 1) * BLOCK_BYTES + NUMBER_AT)
    if age_of(list, last) <= age then high = middle else low = middle + 1 end
  end
  if low > list.blocks then return nil end
  local block = entries_of(list, low)
  if not block then return false end
  for j = 1, block.n do
    if block.number[j] == ch.detail then
      local since = block.at[j]
      local is_there = since >= list.since and since - list.shift < ch.receipt and since - list.shift + ch.window > at
      if is_there then return low, block, j end
      return nil
    end
  end
end
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
  if ch.window > list.window then list.window = ch.window end
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
-- Packed values: the counters of a rule and subject in one string.
local WINDOWS_MAX = 8 -- of a quota and key, in which something counts, under all algorithms together
local COUNTERS_MAX = 255 -- of a rule and key, in which something counts

-- The i-th of the records in a value.
local function record(value, count, i)
  local tag, window, limit, burst = unpack_from(FIXED_PART, value, HEAD_BYTES + FIXED_BYTES * (i - 1) + 1)
  local a, c = unpack_from(MOVING_PART, value, moving_at(count) + MOVING_BYTES * (i - 1))
  local b = unpack_from(NUMBER_PART, value, b_at(count) + B_BYTES * (i - 1))
  if tag % 8 == SLIDING then return tag, window, a, window, c, b, limit, burst end
  return tag, window, a, b, c, limit, limit, burst
end

-- The names in a value, each with its length before it. What cannot be read counts nothing: it is left out.
local function names_in(value, count)
  local names, at = {}, value_bytes(count) + 1
  for i = 1, count do
    local length = byte(value, at) or 0
    names[i] = at + length <= #value and sub(value, at, at + length) or '\0'
    at = at + length + 1
  end
  return names
end

-- The window that is part of a counter's identity: one on the calendar is another one, and so is an aligned one.
local function window_of(ch)
  if ch.any_window then return 0 end
  if ch.aligned then return ch.window + 2 end
  return ch.calendar and ch.window + 1 or ch.window
end

-- Whether a counter would be in a window too many of its quota and key, under whichever algorithm.
local function has_too_many_windows(ch)
  local value, of, windows = values[ch.k], window_of(ch), 0
  if ch.list or ch.kit or of == 0 or not value then return false end
  if ch.index and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) > now then return false end
  local count = byte(value, 2)
  for i = 1, count do
    local tag, window, a, b, c, e = record(value, count, i)
    local is_own = tag == ch.tag and window == of
    if tag - tag % 8 == ch.tag - ch.tag % 8 and not is_own and window > 0 and expiry(tag % 8, a, b, c, e) > now then
      windows = windows + 1
    end
  end
  return windows >= WINDOWS_MAX
end

-- Whether the value of a counter would have more of them than a byte can tell with those of all charges.
local function has_too_many_counters(ch, charges)
  local value = not ch.list and not ch.kit and values[ch.k]
  if not value or byte(value, 2) + #charges <= COUNTERS_MAX then return false end
  local count, needed = byte(value, 2), 0
  for i = 1, count do
    local tag, _, a, b, c, e = record(value, count, i)
    if expiry(tag % 8, a, b, c, e) > now then needed = needed + 1 end
  end
  for i = 1, #charges do
    local other = charges[i]
    local is_live = other.index and expiry(other.alg, other.a, other.b, other.c, other.e) > now
    if other.k == ch.k and not is_live then needed = needed + 1 end
  end
  return needed > COUNTERS_MAX
end

-- Finds the record of a counter in a value that can be read; says whether its numbers can be.
local function seek(ch, value)
  ch.a, ch.b, ch.c, ch.e, ch.index = 0, 0, 0, 0, nil
  local of = window_of(ch)
  local count = value and byte(value, 2) or 0
  for i = 1, count do
    local tag, window, a, b, c, e = record(value, count, i)
    if tag == ch.tag and (window == of or ch.all_windows) then
      ch.index, ch.a, ch.b, ch.c, ch.e = i, a, b, c, e
      return is_sound(ch.alg, a, b, c, e)
    end
  end
  return true
end

-- Finds the state of a charge; what to answer if it cannot be read. `ch.old` is what the
-- caller is told was there.
local function load(ch)
  if ch.alg == LOG or ch.alg == LEASES then
    ch.list = list_at(ch.k, ch.alg)
    return not ch.list and unreadable(ch.k) or nil
  elseif ch.alg == KIT then
    local kit = kit_at(ch.k)
    if not kit then return unreadable(ch.k) end
    ch.kit = kit
    return nil
  end
  local value = values[ch.k]
  ch.old = '\0'
  if value then
    local format, count, low, high = byte(value, 1, 4)
    if not high or not READABLE[format] or #value ~= value_bytes(count) + low + 256 * high then
      return unreadable(ch.k)
    end
    ch.old = pack('<BI2', 2, #value) .. value
  end
  return not seek(ch, value) and unreadable(ch.k) or nil
end

-- Writes a record into its key's value, or takes it out (without `ch.a`). A check puts its own records first, in
-- its order, and drops what is over: from the next one on, the value is as the ordinary ways expect it.
local function save(ch)
  local value, k, count = values[ch.k], ch.k, 0
  local fixed, bs, moving, names, n, ttl, of = {}, {}, {}, {}, 0, 0, window_of(ch)
  local place = ch.size and ch.size > 0 and ch.place + 1
  local function keep(at, name, tag, window, a, b, c, e, limit, burst)
    n = n + 1
    if at > n then at = n end
    table.insert(names, at, name)
    table.insert(fixed, at, pack(FIXED_PART, tag, window, limit, burst))
    table.insert(moving, at, pack(MOVING_PART, a, c))
    table.insert(bs, at, pack(NUMBER_PART, tag % 8 == SLIDING and e or b))
  end
  -- A bucket's fraction is told in the limit beside it.
  local limit, burst = ch.limit, ch.extra
  if ch.alg == TOKEN or ch.alg == LEAKY then limit = ch.e end
  if value then
    count = byte(value, 2)
    ttl = unpack_from(TTL, value, ttl_at(count))
  end
  local known, name = value and names_in(value, count), ch.name
  -- What is added makes a value longer, so then what is over goes; and from a value that is longer than its rule.
  local keeps_all = ch.index and not (place and count > ch.size) or not ch.a
  local own
  for i = 1, count do
    local tag, window, a, b, c, e, was_limit, was_burst = record(value, count, i)
    if tag == ch.tag and (window == of or not ch.a and ch.all_windows) then
      own, name = own or n + 1, name or known[i]
    elseif keeps_all or expiry(tag % 8, a, b, c, e) > now then
      keep(n + 1, known[i], tag, window, a, b, c, e, was_limit, was_burst)
    end
  end
  if ch.a then keep(place or own or n + 1, name or '\0', ch.tag, of, ch.a, ch.b, ch.c, ch.e, limit, burst) end
  if n > COUNTERS_MAX then return end -- no check does that: what is settled beyond its estimate could
  if n == 0 then
    values[k] = false
    return mark(k, ANEW)
  end
  local how, last = IN_PLACE, ch.a and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) or 0
  if not (last <= ttl) then how, ttl = ANEW, ttl_until(last) end
  local tail = concat(names)
  if #tail == n then tail = '' end -- no quota has a name
  values[k] = pack(HEAD, FORMAT, n, #tail) .. concat(fixed) .. concat(bs) .. pack(TTL, ttl) .. concat(moving) .. tail
  if not value or #values[k] ~= #value then how = ANEW end
  mark(k, how)
end
-- Whether a charge alone would pass, and what becomes of its state.

-- The newest instant a counter has seen, and its window.
local function newest(ch)
  if ch.list then
    if ch.alg == LOG then
      local list = list_of(ch)
      return last_in(list) - list.shift, list.window
    end
  elseif ch.alg == FIXED then
    return ch.a - ch.b, ch.b
  elseif ch.alg == SLIDING and ch.c + ch.e > 0 then
    return ch.a, ch.b
  end
  return 0, 0
end

local function heal(ch, at)
  if ch.alg == FIXED then
    ch.a = at + ch.b
  elseif ch.alg == SLIDING then
    ch.a = at
  else
    local full = ch.alg == TOKEN and ch.rm or ch.rm + ch.window
    ch.a, ch.b, ch.c, ch.e = at + full, bucket_ahead(0, 0, 0, full, ch.rr), ch.rr, ch.limit
  end
  ch.healed = true
end

-- Whether other windows leave no room for one in which nothing counts yet.
local function has_too_many_lists(ch)
  local family, others = ch.list, 0
  for i = 1, family.n do
    local list = family[i]
    if list_expiry(list, list.shift) > now then
      if list.own == ch.rm then return false end
      others = others + 1
    end
  end
  return others >= WINDOWS_MAX
end

-- Whether a charge on a list would pass. The list stays as it is: what a step of the clock means for it is one
-- number, which the charge has until it is committed.
local function list_admits(ch, at)
  local list = list_of(ch)
  ch.shift = shift_at(list, at)
  ch.healed = ch.shift ~= list.shift
  local used, ends, b, gone = live(list, ch.window, at, ch.shift)
  local cost = ch.cost > 0 and ch.cost or 1 -- for nothing, tell what one unit would meet
  local has_room = used and used + cost <= ch.limit
  ch.old = used and is_instant(at + ch.shift) and (not has_room or can_append(list, ch.shift, at))
      and boiled_down(list, ch.limit, cost, ch.shift, used, ends, b, gone)
  if not ch.old then ch.broken = true end
  return has_room
end

-- Whether a charge alone would pass at `at`; heals what needs it.
local function admits(ch, at)
  if ch.list then
    return list_admits(ch, at)
  elseif ch.kit then
    local kit = ch.kit
    ch.healed = kit.exists and kit.left < 0
    ch.old = pack('<Bdd', 4, kit.count, ch.healed and ch.window / 1000 or kit.left)
    return kit.count + ch.cost <= ch.limit
  end
  if ch.closed then return false end
  local function try_step()
    local verdict
    verdict, ch.na, ch.nb, ch.nc, ch.ne = step(ch.alg, ch.a, ch.b, ch.c, ch.e, at, ch.cost, ch.limit, ch.window,
      ch.cm, ch.cr, ch.rm, ch.rr, ch.calendar)
    return verdict
  end
  local verdict = try_step()
  if verdict == 2 then
    heal(ch, at)
    verdict = try_step()
  end
  return verdict == 0
end

local function commit(ch, charged, at)
  if ch.list then
    if charged then
      charge_list(ch, ch.shift, at)
    elseif ch.healed then
      list_of(ch).shift, ch.list.changed = ch.shift, true
    end
  elseif ch.kit then
    local kit = ch.kit
    if ch.healed then kit.heal, kit.left = true, ch.window / 1000 end
    if charged then
      charge_kit(kit, ch.window, ch.cost)
    end
  elseif charged then
    ch.a, ch.b, ch.c, ch.e = ch.na, ch.nb, ch.nc, ch.ne
    save(ch)
  elseif ch.healed then
    save(ch)
  end
end
-- What buckets owe.

-- What a bucket owes, in microseconds and parts of one.
local function debt_of(ch, at) return bucket_debt(ch.a, ch.c, ch.e, at, ch.limit) end

-- How many units a bucket has left.
local function left_in(ch, at)
  local debt, rest = debt_of(ch, at)
  local free, part = ch.rm - debt, ch.rr - rest
  if part < 0 then free, part = free - 1, part + ch.limit end
  if free < 0 then return 0 end
  local units, over = muldivmod(ch.limit, free, ch.window)
  over = over + part
  return units + (over - fmod(over, ch.window)) / ch.window
end
-- Penalties: gates that deny, strikes and offences.
local PENALTY, PENALTY_BYTES = '<BBBBI4I4I4I4dI4ddI4dI4', 64 -- then the sentences
-- What values call their counters, each with its length before it.
local GATE_NAME, STRIKES_NAME, OFFENCES_NAME = '\7penalty', '\7strikes', '\8offences'

-- The penalties of a plan, with their keys; and where the item goes on. Their gates and
-- strikes are put behind the charges, because they have a say in the instant.
local function penalties_of(plan, charges, pos)
  local terms = plan.penalties
  if not terms then
    terms = {}
    local from = plan.penal + 1
    for i = 1, byte(blob, plan.penal) do
      terms[i] = { unpack_from(PENALTY, blob, from) }
      from = from + PENALTY_BYTES
      terms[i].sentences = { unpack_from('<' .. string.rep('d', terms[i][4]), blob, from) }
      from = from + 8 * terms[i][4]
    end
    plan.penalties = terms
  end
  local penalties, n = {}, plan.n
  for i = 1, #terms do
    local t, k = terms[i], unpack_from('<I2', blob, pos)
    pos = pos + 2
    local flags = t[1]
    local penalty = {
      shadow = flags % 2 == 1, counts = flags % 4 >= 2, first = t[2] + 1, last = t[2] + t[3],
      sentences = t.sentences, n = t[4],
      gate = { alg = FIXED, k = k, tag = t[5], cost = 1, limit = 1, extra = 1, window = t.sentences[1],
               any_window = true, name = GATE_NAME },
      strikes = { alg = FIXED, k = k, tag = t[6], cost = 1, limit = t[8], extra = t[8], window = t[9],
                  name = STRIKES_NAME },
      offences = flags >= 4 and { alg = TOKEN, k = k, tag = t[7], cost = 1, limit = t[10], extra = t[10],
                                  window = t[11], cm = t[12], cr = t[13], rm = t[14], rr = t[15],
                                  name = OFFENCES_NAME },
    }
    penalties[i] = penalty
    charges[n + 2 * i - 1], charges[n + 2 * i] = penalty.gate, penalty.strikes
  end
  return penalties, pos
end

-- Finds the counters of a penalty, which are in one value; what to answer if it cannot be read.
local function load_penalty(penalty)
  local failure, value = load(penalty.gate), values[penalty.gate.k]
  if failure then return failure end
  local is_sound_value = seek(penalty.strikes, value)
  if penalty.offences then is_sound_value = seek(penalty.offences, value) and is_sound_value end
  return not is_sound_value and unreadable(penalty.gate.k) or nil
end

-- Counts a strike, and shuts the gate if it is one too many; what came of it.
local function strike(penalty, at)
  local gate, strikes, offences = penalty.gate, penalty.strikes, penalty.offences
  if admits(strikes, at) and strikes.nc < strikes.limit then
    commit(strikes, true, at)
    return 2
  end
  local came = 4
  if penalty.open then
    came = 3
    local so_far = 0
    if offences then
      local has_room = admits(offences, at)
      so_far = offences.limit - left_in(offences, at)
      commit(offences, has_room, at)
    end
    gate.window = penalty.sentences[so_far < 0 and 1 or so_far < penalty.n and so_far + 1 or penalty.n]
    admits(gate, at)
    commit(gate, true, at)
  end
  if strikes.index then
    strikes.a = nil
    save(strikes)
  end
  return came
end

-- What a judged check means for its penalties, and what is told of that.
local function penalise(penalties, charges, n, at, vetoed, peek, deny_writes)
  local answer, sent = { pack('<dB', at, deny_writes and 0 or 1) }, nil
  for i = n, 1, -1 do
    if byte(charges[i].old) == 2 then
      sent = charges[i].k
      break
    end
  end
  for i = 1, #penalties do
    local penalty, over, came = penalties[i], false, 0
    local gate = penalty.gate
    for j = penalty.first, penalty.last do
      if charges[j].cost > 0 and not charges[j].admitted then over = true end
    end
    if vetoed then
      if not penalty.open and not penalty.shadow then came = 1 end
    elseif over and penalty.counts and not peek and not deny_writes then
      came = strike(penalty, at)
    end
    if gate.healed and came ~= 3 and not peek and not deny_writes then save(gate) end
    local old = gate.old
    if old ~= '\0' then
      if sent == gate.k then old = '\1' else sent = gate.k end
    end
    answer[i + 1] = old .. string.char(came)
  end
  return concat(answer)
end
-- The decision on a check.

-- Judges all charges at one instant. The answer, and the instant.
local function judge(charges, n, peek, deny_writes, penalties)
  local at, again = now, true
  local all = penalties and n + 2 * #penalties or n
  while again do
    again = false
    local latest = at
    for i = 1, all do
      local seen, window = newest(charges[i])
      if seen > at and seen - at <= window and seen > latest then latest = seen end
    end
    if latest > at then at, again = latest, true end
  end
  local denied = false
  for i = 1, penalties and #penalties or 0 do
    local penalty = penalties[i]
    penalty.open = admits(penalty.gate, at)
    if not penalty.open and not penalty.shadow then denied = true end
  end
  local vetoed = denied
  for i = 1, n do
    local ch = charges[i]
    ch.admitted = admits(ch, at)
    if ch.broken then return unreadable(ch.k), at end
    if ch.lifted then ch.admitted = true elseif ch.blocked then ch.admitted = false end
    if ch.cost > 0 and not ch.shadow and not ch.admitted then denied = true end
  end
  if deny_writes and not denied and not peek then
    return pack('<BB', 7, #deny_writes) .. deny_writes, at
  end
  local answer = { denied and '\2' or '\1' }
  for i = 1, n do
    local ch, before = charges[i], charges[i - 1]
    local old = ch.old
    if before and before.k == ch.k and before.old == old and old ~= '\0' and not ch.list then old = '\1' end
    answer[i + 1] = (ch.found or '') .. old
    if not peek and not deny_writes then
      commit(ch, not denied and ch.cost > 0 and ch.admitted and not ch.lifted and not ch.blocked, at)
    end
  end
  if penalties then answer[n + 2] = penalise(penalties, charges, n, at, vetoed, peek, deny_writes) end
  return concat(answer), at
end
-- Checks, and the records of those that have an id.
local ID, ID_BYTES = '<BBc8dddI4', 38           -- then the answer, then what to keep

-- The record of an id: false if there is none, nil if it cannot be read.
local function id_record(k)
  local value = values[k]
  if not value then return false end
  if #value < ID_BYTES or not READABLE[byte(value)] then return nil end
  local _, stage, digest, open_until, forget_at = unpack_from(ID, value)
  if forget_at <= now then return false end
  return { stage = stage, digest = digest, open_until = open_until, forget_at = forget_at, value = value }
end

-- Judges a check; the answer, and where the next item begins.
local function check(op, plan, pos, deny_writes)
  local n, failure, penalties = plan.n, nil, nil
  local is_penal = op == 5
  if is_penal then op, pos = byte(blob, pos), pos + 1 end
  local charges
  charges, pos = charges_of(charges_in(plan), pos)
  if is_penal then penalties, pos = penalties_of(plan, charges, pos) end
  for i = 1, n do
    failure = failure or resolve(charges[i])
  end
  local peek, id, argument, keep, hold, digest = op == 1, nil, nil, nil, nil, nil
  if op == 2 then
    peek, id, argument, keep, hold, digest, pos = unpack_from('<BI2I2ddc8', blob, pos)
    peek = peek == 1
  end
  local known = id and id_record(id)
  if known then
    return known.digest == digest and pack('<BI4', 3, #known.value) .. known.value or '\4', pos
  end
  if known == nil and id then return unreadable(id), pos end
  for i = 1, n do
    failure = failure or load(charges[i])
  end
  for i = 1, penalties and #penalties or 0 do
    failure = failure or load_penalty(penalties[i])
  end
  if failure then return failure, pos end
  for i = 1, n do
    local ch = charges[i]
    if has_too_many_windows(ch) or ch.list and has_too_many_lists(ch) then return '\6', pos end
    if has_too_many_counters(ch, charges) then return '\8', pos end
  end
  local answer, at = judge(charges, n, peek, deny_writes, penalties)
  if id and not peek and byte(answer) == 1 then
    local stage, open_until = 0, at
    if hold >= 0 then stage, open_until = 1, at + hold end
    local forget_at = open_until + keep
    values[id] = pack(ID, FORMAT, stage, digest, open_until, forget_at, now, #answer) .. answer .. ARGV[argument]
    found[id] = forget_at
    mark(id, ANEW)
  end
  return answer, pos
end
-- Refunds, settlements and resets.
local DEBT_WINDOWS_MAX = 10 -- that a bucket remembers beyond a full refill

-- What was given back under a receipt that left the process: format, units.
local NOTE, NOTE_BYTES = '<BI4', 5

local function roll(ch, window, at)
  ch.a, ch.c, ch.e = sliding_roll(ch.a, ch.c, ch.e, window, at)
  ch.b = window
end

-- The smaller of two numbers.
local function at_most(number, bound) return number < bound and number or bound end

-- A debt less another that is not larger.
local function bucket_less(debt, rest, gone, part, limit)
  if rest < part then return debt - gone - 1, rest + limit - part end
  return debt - gone, rest - part
end

-- Gives units of a bucket back; how many, where one that has begun to drain is one.
local function refund_bucket(ch, at)
  local part = fmod(ch.detail, ch.limit)
  local ends = ch.receipt + (ch.detail - part) / ch.limit
  -- What was given back before stood at the end of the charge, and all behind it has moved up.
  if ch.given > 0 then
    local gone, over = span(ch.given, ch.window, ch.limit)
    if not less(gone, over, ends, part) then return 0 end
    ends, part = bucket_less(ends, part, gone, over, ch.limit)
  end
  -- Units drain in the order they came: what is left of a charge is owed until its receipt.
  if ends < at then return 0 end
  local gm, gr, still = ch.cm, ch.cr, ends - at
  if less(still, part, gm, gr) then gm, gr = still, part end
  local debt, rest = debt_of(ch, at)
  if less(debt, rest, gm, gr) then gm, gr = debt, rest end
  if gm + gr == 0 then return 0 end -- nothing is no reason to round a debt to the rate of another quota
  debt, rest = bucket_less(debt, rest, gm, gr, ch.limit)
  ch.a, ch.c, ch.e = at + debt, rest, ch.limit
  local units, over = muldivmod(ch.limit, gm, ch.window)
  return at_most(units + ((over + gr) + (ch.window - (over + gr) % ch.window) % ch.window) / ch.window, ch.cost)
end

-- Each of the functions that refund says how many units of the charge still counted.
local function refund_packed(ch, at)
  local back = 0
  if ch.alg == FIXED then
    if ch.receipt == ch.a and at < ch.a then back = at_most(ch.c, ch.cost) end
    ch.c = ch.c - back
  elseif ch.alg == SLIDING then
    roll(ch, ch.b, at)
    if ch.receipt == ch.a then
      back = at_most(ch.e, ch.cost)
      ch.e = ch.e - back
    elseif ch.receipt + ch.b == ch.a then
      back = at_most(ch.c, ch.cost)
      ch.c = ch.c - back
    end
  else
    back = refund_bucket(ch, at)
  end
  save(ch)
  return back
end

local function top_up_packed(ch, at)
  if ch.alg == FIXED then
    if at >= ch.a then
      ch.a, ch.b = fixed_window_at(at, ch.window, ch.calendar)
      ch.c = 0
    end
    ch.c = ch.c + ch.cost < U32_MAX and ch.c + ch.cost or U32_MAX
  elseif ch.alg == SLIDING then
    roll(ch, ch.c + ch.e > 0 and ch.b or ch.window, at)
    ch.e = ch.e + ch.cost < U32_MAX and ch.e + ch.cost or U32_MAX
  else
    local debt, rest = debt_of(ch, at)
    local owed, part = bucket_sum(debt, rest, ch.cm, ch.cr, ch.limit)
    local full, over = ch.rm, ch.rr
    if ch.alg == LEAKY then full = full + ch.window end
    if less(full, over, owed, part) then
      local kept = full + DEBT_WINDOWS_MAX * ch.window
      if kept > WINDOW_MAX then kept = full < WINDOW_MAX and WINDOW_MAX or full end
      if less(kept, over, owed, part) then owed, part = kept, over end
      full, over = owed, part
      if less(owed, part, debt, rest) then owed, part = debt, rest end
    end
    ch.a, ch.b, ch.c, ch.e = at + owed, bucket_ahead(ch.b, debt, rest, full, over), part, ch.limit
  end
  save(ch)
end

local function adjust_kit(kit, ch)
  local units = ch.cost
  if ch.kind == 0 then
    -- Its time to live is known to a millisecond; another window ends much later.
    local ends = now + kit.left * 1000
    if not kit.exists or ends - ch.receipt > 2000 or ch.receipt - ends > 2000 then return 0 end
    units = -at_most(kit.count, units)
  elseif not kit.exists and kit.add == 0 then
    kit.left = ch.window / 1000
  end
  kit.count, kit.add = kit.count + units, kit.add + units
  return -units
end

-- Cuts a refund to what its receipt has left; false if what is noted of it cannot be read.
local function look_up_note(ch)
  local value = values[ch.note]
  ch.given = 0
  if value then
    if #value ~= NOTE_BYTES or not READABLE[byte(value)] then return false end
    local _
    _, ch.given = unpack_from(NOTE, value)
  end
  local left = ch.until_when > now and ch.whole - ch.given or 0
  if ch.cost > left then
    ch.cost = left > 0 and left or 0
    if ch.alg == TOKEN or ch.alg == LEAKY then ch.cm, ch.cr = span(ch.cost, ch.window, ch.limit) end
  end
  return true
end

local function take_note(ch, units)
  values[ch.note] = pack(NOTE, FORMAT, ch.given + units)
  found[ch.note] = ch.until_when
  mark(ch.note, ANEW)
end

-- When a charge is changed: now, or at the newest instant of its counter.
local function instant_for(ch)
  local seen, window = newest(ch)
  return seen > now and seen - now <= window and seen or now
end

-- Changes one charge; how many units of it were given back.
local function adjust_one(ch)
  load(ch) -- again: two charges may share a value
  if ch.note > 0 then
    look_up_note(ch)
    if values[ch.note] and ch.until_when <= now then -- it has outlived its time to live
      values[ch.note] = false
      mark(ch.note, ANEW)
    end
  end
  -- No receipt is of a quota that lets nothing pass.
  if ch.cost == 0 or ch.limit == 0 then return 0 end
  local at, back = instant_for(ch), 0
  if ch.list then
    if ch.kind == 1 then top_up_list(ch, at) else back = refund_list(ch, at) end
  elseif ch.kit then
    back = adjust_kit(ch.kit, ch)
  elseif ch.kind == 1 then
    top_up_packed(ch, at)
  elseif ch.index then
    back = refund_packed(ch, at)
  end
  if ch.kind == 1 or back == 0 then return 0 end
  if ch.note > 0 then take_note(ch, back) end
  return back
end

local function adjust(n, pos, deny_writes)
  local id, digest
  id, digest, pos = unpack_from('<I2c8', blob, pos)
  local charges, failure = {}, nil
  for i = 1, n do
    local kind, receipt, detail, k, note, in_all, until_when
    kind, receipt, detail, k, note, in_all, until_when, pos = unpack_from('<BdI4I2I2I4d', blob, pos)
    local ch = charge_of({ unpack_from(CHARGE, blob, pos) })
    ch.kind, ch.receipt, ch.detail, ch.k = kind, receipt, detail, k
    ch.note, ch.whole, ch.until_when, ch.given = note, in_all, until_when, 0
    charges[i], pos = ch, pos + CHARGE_BYTES
  end
  local known = id > 0 and id_record(id)
  if id > 0 then
    if known == nil then return unreadable(id), pos end
    if not known or known.digest ~= digest or known.stage == 0 then return '\13', pos end
    if known.stage == 2 then return '\11', pos end
    if known.open_until <= now then return '\12', pos end
  end
  if deny_writes then return pack('<BB', 7, #deny_writes) .. deny_writes, pos end
  for i = 1, n do
    local ch = charges[i]
    failure = failure or load(ch) or ch.note > 0 and not look_up_note(ch) and unreadable(ch.note)
        or ch.list and not can_adjust(ch, instant_for(ch)) and unreadable(ch.k) or nil
  end
  if failure then return failure, pos end
  if known then
    values[id] = sub(known.value, 1, 1) .. '\2' .. sub(known.value, 3)
    found[id] = known.forget_at
    mark(id, IN_PLACE)
  end
  local answer = { '\10' }
  for i = 1, n do
    answer[i + 1] = pack('<I4', adjust_one(charges[i]))
  end
  return concat(answer), pos
end

-- Whether something counts in any window of a counter that is there.
local function counts_in_a_window(ch)
  local value = values[ch.k]
  local count = byte(value, 2)
  for i = 1, count do
    local tag, _, a, b, c, e = record(value, count, i)
    if tag == ch.tag and expiry(ch.alg, a, b, c, e) > now then return true end
  end
  return false
end

local function reset(alg, pos, deny_writes)
  local ch = { alg = alg, all_windows = true }
  ch.k, ch.tag, pos = unpack_from('<I2I4', blob, pos)
  if load(ch) then
    -- Unreadable: only a reset may delete it.
    if deny_writes then return pack('<BB', 7, #deny_writes) .. deny_writes, pos end
    found[ch.k], values[ch.k] = nil, false
    write('DEL', KEYS[ch.k])
    return '\14', pos
  end
  local list, kit = ch.list, ch.kit
  -- There, or about to be: an earlier item of the batch may have made it.
  local is_there = ch.index or list and (list.exists or list.changed) or kit and (kit.exists or kit.add ~= 0)
  -- What is over counts for nothing: it goes, and nobody is told of it.
  local is_live = is_there
  if ch.index then
    is_live = counts_in_a_window(ch)
  elseif list then
    is_live = false
    for i = 1, list.n do
      if list_expiry(list[i], list[i].shift) > now then is_live = true end
    end
  end
  if is_there and deny_writes then return pack('<BB', 7, #deny_writes) .. deny_writes, pos end
  if ch.index then
    ch.a = nil
    save(ch)
  elseif is_there then
    found[ch.k], values[ch.k] = nil, false
    write('DEL', KEYS[ch.k])
  end
  return is_live and '\14' or '\15', pos
end

return { check = check, adjust = adjust, reset = reset, write_list = write_list }
end

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
end

-- The layouts that both ways read and write. A unit test compares them with the library's.
-- luacheck: push ignore 211
local HEADER = '<dI2I2I2I2I2I2'                 -- of a batch
local PLAN, PLAN_BYTES = '<BBI2I2', 6           -- then its groups or penalties, its charges, its names
local GROUP_BYTES = 3
local TERMS, TERMS_BYTES = '<I4dI4dI4', 28
local CHARGE_BYTES = 55
-- A value: B format, B counters, I2 bytes at its end; for each counter I4 tag, d window, I4 limit, I4 burst, which
-- seldom change, and d b for each; d the end of the time to live; for each counter d a, I4 c.
-- What a, b and c are is with the algorithms. Limit and burst are those of the last charge. At the end are the
-- names of the quotas within their rule, for each counter B length and the name; nothing if no quota has one.
local HEAD_BYTES, FIXED_BYTES, TTL_BYTES, B_BYTES, MOVING_BYTES = 4, 20, 8, 8, 12
local MOVING_PART, NUMBER_PART = '<dI4', '<d'
local SLACK_MIN, SLACK_MAX = 1000000, 60000000  -- what a key lives beyond its state, in microseconds
local TEST_TTL = 60000                          -- milliseconds a key lives at least if `now` is given
-- luacheck: pop
-- The short way, for what most checks are: token buckets and fixed windows in packed values, all
-- enforced, under no switch and no override. Anything out of the ordinary in a batch, and the whole
-- of it is for the general way: nothing has been written by then. No functions here, and few tables.
local FIRST, FIRST_B = TTL_BYTES - MOVING_BYTES + 1, HEAD_BYTES - B_BYTES + 1
local FIRST_WINDOW = HEAD_BYTES - FIXED_BYTES + 5 -- behind the tag
-- As text, because a number costs more: how the value of one counter without a name is told, and after how
-- many bytes the moving parts of one and of four begin.
local ONE_BYTES, ONE_FOUND, ONE_AT, FOUR_AT = 52, '\2\52\0', '40', '124'
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
-- how its value begins and how long that is, how long it is in all and how it ends, and five terms for
-- each counter.
local plans = {}
for p = 1, plan_count do
  local n, groups, length, named = unpack_from(PLAN, blob, pos)
  if groups == 0 then return general() end
  local at = pos + PLAN_BYTES
  local size, kind, skip = byte(blob, at, at + GROUP_BYTES - 1)
  local plan
  local names_at = pos + length + n * CHARGE_BYTES
  if groups == 1 and size == 1 then
    at = at + GROUP_BYTES
    local head = HEAD_BYTES + FIXED_BYTES + B_BYTES
    plan = { 1, 1, kind, 2 + 4 * skip, sub(blob, at, at + head - 1), head, ONE_BYTES + named,
             named > 0 and sub(blob, names_at, names_at + named - 1) or '', unpack_from(TERMS, blob, at + head) }
  else
    plan = { groups }
    local j = 2
    for _ = 1, groups do
      size, kind, skip = byte(blob, at, at + GROUP_BYTES - 1)
      at = at + GROUP_BYTES
      local head = HEAD_BYTES + (FIXED_BYTES + B_BYTES) * size
      plan[j], plan[j + 1], plan[j + 2] = size, kind, 2 + 4 * skip
      local tail = ''
      if named > 0 then -- the value says how long its names are; a rule without any has empty ones
        local low, high = byte(blob, at + 2, at + 3)
        local bytes = low + 256 * high
        tail = sub(blob, names_at, names_at + bytes - 1)
        names_at = names_at + (bytes > 0 and bytes or size)
      end
      plan[j + 3], plan[j + 4] = sub(blob, at, at + head - 1), head
      plan[j + 5], plan[j + 6] = head + TTL_BYTES + MOVING_BYTES * size + #tail, tail
      at, j = at + head, j + 7
      for _ = 1, size do
        plan[j], plan[j + 1], plan[j + 2], plan[j + 3], plan[j + 4] = unpack_from(TERMS, blob, at)
        at, j = at + TERMS_BYTES, j + 5
      end
    end
  end
  plans[p] = plan
  pos = pos + length + n * CHARGE_BYTES + named
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
local others                  -- where the moving parts begin in values that have others' counters, too
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
        value = sub(value, 1, head + TTL_BYTES) .. moving .. plan[j + 6]
        values[k], moved[k] = value, false
      end
      if #value ~= plan[j + 5] then
        -- Behind the counters of this check there may be others: of another plan, or of tiers that went. As long as
        -- all of them count they are left alone; the general way drops what is over.
        local format, count, low, high = byte(value, 1, 4)
        local own, fixed = plan[j + 3], HEAD_BYTES + FIXED_BYTES * size
        if not high or format ~= byte(own) or count <= size or moved[k] ~= nil or others and others[k]
            or #value ~= HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES + MOVING_BYTES) * count + low + 256 * high
            or sub(value, HEAD_BYTES + 1, fixed) ~= sub(own, HEAD_BYTES + 1, fixed) then
          return general()
        end
        local bs = HEAD_BYTES + FIXED_BYTES * count
        if sub(value, bs + 1, bs + B_BYTES * size) ~= sub(own, fixed + 1) then return general() end
        local at = bs + B_BYTES * count + TTL_BYTES
        for i = size, count - 1 do
          if not (unpack_from(NUMBER_PART, value, at + MOVING_BYTES * i + 1) > now) then return general() end
        end
        others = others or {}
        others[k] = at
        value = own .. sub(value, at - TTL_BYTES + 1, at + MOVING_BYTES * size) .. plan[j + 6]
        values[k] = value
      end
      if sub(value, 1, head) ~= plan[j + 3] then
        -- The same counters may be further ahead than this quota takes them: they are in debt.
        local fixed = head - B_BYTES * size
        if sub(value, 1, fixed) ~= sub(plan[j + 3], 1, fixed) then return general() end
        is_odd = true
      end
      out[o + 1], out[o + 2] = #value == ONE_BYTES and ONE_FOUND or pack('<BI2', 2, #value), value
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
    j, last = j + 7, 0
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
        if others and others[k] then return general() end
        -- It would not live as long as its state: anew, with slack so that this is seldom.
        local left = last - now
        ttl = last + (left < SLACK_MIN and SLACK_MIN or left > SLACK_MAX and SLACK_MAX or left)
        lives = lives or {}
        local head = value and sub(value, 1, plan[place + 4]) or plan[place + 3]
        values[k], lives[k] = head .. pack('<d', ttl) .. moving .. plan[place + 6], ttl
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
    if moving then
      local at = HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES) * #moving / MOVING_BYTES
      value = sub(value, 1, at) .. moving .. sub(value, at + #moving + 1)
    end
    reply = write('SET', KEYS[k], value, 'PX', given and left < TEST_TTL and TEST_TTL or left)
  elseif others and others[k] then
    if not moving then -- looked at after it was changed
      local count = byte(value, 2)
      local at = HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES) * count
      moving = sub(value, at + 1, at + MOVING_BYTES * count)
    end
    reply = write('SETRANGE', KEYS[k], others[k], moving)
  elseif not moving then
    reply = write('SETRANGE', KEYS[k], '0', value)
  else
    local size = #moving
    local at = size == MOVING_BYTES and ONE_AT or size == 4 * MOVING_BYTES and FOUR_AT
        or HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES) * size / MOVING_BYTES
    reply = write('SETRANGE', KEYS[k], at, moving)
  end
  if i == 1 and type(reply) == 'table' and reply.err then return general() end
end
return table.concat(out, '', 1, o)
