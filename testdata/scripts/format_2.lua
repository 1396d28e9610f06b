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
--           groups, I2 bytes until the charges begin, the groups, the charges. There are groups
--           if a check can go the short way, one for each value: B counters, B kind (1 token
--           buckets, 2 a fixed window), B how many are overridable, how such a value begins, and
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
--           cost adds to a bucket's debt, d and I4 the debt a bucket has room for, I4 burst or
--           queue, B calendar unit (6: multiples of the window), h minutes east of UTC. Flags: 1 shadow,
--           2 overridable, 4 lifted, 8 blocked, 16 windows by the clock, 32 a bucket without a rate: its limit
--           is 0, 64 one counter for all windows.
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
--             7 not written (B length): the server's reason
--             10 done (for each charge I4 the units given back)  11 settled before  12 lapsed  13 unknown
--             14 there was a counter  15 there was none
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
local PLAN, PLAN_BYTES = '<BBI2', 4             -- then its groups or penalties, then its charges
local GROUP_BYTES = 3
local TERMS, TERMS_BYTES = '<I4dI4dI4', 28
local CHARGE_BYTES = 55
-- A value: B format, B counters, I2 bytes at its end; for each counter I4 tag, d window, I4 limit, I4 burst, which
-- seldom change, and d b for each; d the end of the time to live; for each counter d a, I4 c.
-- What a, b and c are is with the algorithms. Limit and burst are those of the last charge. What is at the
-- end is kept as it is: none yet, the names of quotas later.
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

-- Tells the value at a key; false if another way must see to it.
local function ordinary_value(value, size)
  if not value then
    o = o + 1
    out[o] = '\0'
    return true
  end
  local format, count = byte(value, 1, 2)
  if #value ~= value_bytes(size) or format ~= FORMAT or count ~= size then return false end
  out[o + 1], out[o + 2] = pack('<BI2', 2, #value), value
  o = o + 2
  return true
end

-- Notes the value that `state` makes, which lasts until `last`.
local function ordinary_write(k, value, size, last)
  local how, ttl = IN_PLACE, value and unpack_from(TTL, value, ttl_at(size)) or 0
  if not value or not (last <= ttl) then how, ttl = ANEW, ttl_until(last) end
  state[1], state[2], state[3], state[4 + 5 * size] = FORMAT, size, 0, ttl
  local format = size == 1 and '<BBI2I4dI4I4dddI4'
      or '<BBI2' .. string.rep('I4dI4I4', size) .. string.rep('d', size + 1) .. string.rep('dI4', size)
  pending = pending + 1
  pending_keys[pending], pending_marks[pending], pending_costs[pending] = k, how, nil
  pending_values[pending] = pack(format, unpack(state, 1, 4 + 7 * size))
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
  local begin, denied, k, value, last = o + 1, false, nil, nil, 0
  o, pending = begin, 0
  for i = 1, plan.n do
    local charge = plan[i]
    local alg, flags, place, size, cost = charge[1], charge[2], charge[3], charge[4], charge[6]
    if flags > 3 or place >= size or cost == 0 or alg == LOG or alg == LEASES then return nil end
    if place == 0 then
      k, pos = unpack_from('<I2', blob, pos)
      value, last = values[k], 0
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
      elseif not ordinary_value(value, size) then
        return nil
      end
      has_room, ends = ordinary_packed(charge, value, limit, burst, window, cm, cr, rm, rr)
    end
    if has_room == nil then return nil end
    if not has_room and flags % 2 == 0 then denied = true end
    if ends then
      if ends > last then last = ends end
      if place + 1 == size and not denied then ordinary_write(k, value, size, last) end
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
    shadow = flags % 2 == 1, overridable = flags % 4 >= 2,
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
-- Lists: a header, then the entries (instant, units, number) in order. Only the ends are
-- read, unless something unusual happens.
local LIST, LIST_BYTES, ENTRY, ENTRY_BYTES = '<BBI2ddddI4', 40, '<dI4I4', 16

local function list_at(k, alg)
  local list = found[k]
  if list then return list end
  local ends = look('LRANGE', KEYS[k], '0', '1')
  if ends.err then return nil end
  list = { k = k, alg = alg, at = {}, units = {}, number = {}, stored = 0, head = 1, tail = 0,
           ttl = 0, window = 0, known = 0, used = 0, next = 0 }
  if ends[1] then
    if #ends[1] ~= LIST_BYTES or not READABLE[byte(ends[1])] or byte(ends[1], 2) ~= alg then return nil end
    local _
    _, _, _, list.ttl, list.window, list.known, list.used, list.next = unpack_from(LIST, ends[1])
    local n = call('LLEN', KEYS[k]) - 1
    list.exists, list.stored, list.tail = true, n, n
    local newest = n > 1 and call('LINDEX', KEYS[k], '-1') or ends[2]
    if n > 0 then
      if #ends[2] ~= ENTRY_BYTES or #newest ~= ENTRY_BYTES then return nil end
      list.at[1], list.units[1], list.number[1] = unpack_from(ENTRY, ends[2])
      list.at[n], list.units[n], list.number[n] = unpack_from(ENTRY, newest)
      if not is_instant(list.at[1]) or not is_instant(list.at[n]) then return nil end
    end
    if not is_length(list.window) or not is_instant(list.known) or not is_instant(list.used) then return nil end
  end
  found[k] = list
  return list
end

local function fetch(list, i, to)
  for offset, entry in ipairs(call('LRANGE', KEYS[list.k], i, to)) do
    local at = i + offset - 1
    if not list.at[at] and #entry == ENTRY_BYTES then
      local instant, units, number = unpack_from(ENTRY, entry)
      if is_instant(instant) then list.at[at], list.units[at], list.number[at] = instant, units, number end
    end
  end
end

-- Reads all entries, to write them anew; false if one of them cannot be read. A list that is `broken` is
-- left as it is.
local function fetch_all(list)
  if list.stored > 0 and not list.rewrite then fetch(list, 1, list.stored) end
  for i = list.head, list.tail do
    if not list.at[i] then
      list.broken = true
      return false
    end
  end
  list.rewrite = true
  return true
end

-- The instant of an entry; nothing if it cannot be read.
local function instant_in(list, i)
  if not list.at[i] then fetch(list, i, i + 31 < list.stored and i + 31 or list.stored) end
  return list.at[i]
end

local function last_of(list) return list.tail >= list.head and list.at[list.tail] or 0 end

local function list_expiry(list)
  if list.alg == LEASES then return list.known end
  return list.tail >= list.head and last_of(list) + list.window or 0
end

local function copy_of(list)
  local copy = {}
  for name, value in pairs(list) do
    if type(value) == 'table' then
      local entries = {}
      for i, entry in pairs(value) do entries[i] = entry end
      value = entries
    end
    copy[name] = value
  end
  return copy
end

-- The first entry that counts, and the units of it and all that follow. Nothing if the entries cannot be read, or
-- are not what the header says.
local function live(list, window, at)
  local i, used, ends = list.head, list.used, at
  if list.alg == LOG then
    if list_expiry(list) <= at then return list.tail + 1, 0 end
    ends = at - window
  end
  while i <= list.tail do
    local instant = instant_in(list, i)
    if not instant then return nil end
    if instant > ends then break end
    used = used - list.units[i]
    i = i + 1
  end
  if used < 0 or i > list.tail and used > 0 then return nil end
  return i, used
end

-- What the caller needs of a list: at most two entries that answer as all of them would. Nothing if the header counts
-- more than the entries have.
local function boiled_down(list, limit, cost, i, used)
  local head = pack('<BddI4', 3, list.window, list.known, list.next)
  local function entry(at, units) return pack('<dI4', at, units > U32_MAX and U32_MAX or units) end
  -- The newest instant of a log counts even if none of its entries does.
  if used == 0 then return last_of(list) == 0 and head .. '\0' or head .. '\1' .. entry(last_of(list), 0) end
  if used + cost <= limit or cost > limit then
    return head .. '\1' .. entry(last_of(list), used)
  end
  local left = used
  while true do
    local at = i <= list.tail and instant_in(list, i)
    if not at then return nil end
    left = left - list.units[i]
    if left + cost <= limit then
      if left == 0 then return head .. '\1' .. entry(at, used) end
      return head .. '\2' .. entry(at, used - left) .. entry(last_of(list), left)
    end
    i = i + 1
  end
end

-- Takes an entry out of a list that was read whole.
local function take_out(list, i)
  for j = i, list.tail - 1 do
    list.at[j], list.units[j], list.number[j] = list.at[j + 1], list.units[j + 1], list.number[j + 1]
  end
  list.tail = list.tail - 1
end

local function append(list, at, units, number)
  local i = list.tail + 1
  list.tail, list.at[i], list.units[i], list.number[i] = i, at, units, number
end
-- Sliding logs: an entry for each instant, oldest first.

-- Brings a log into what the clock could have made.
local function heal_log(list, at)
  local ahead = last_of(list) - at
  if ahead <= list.window or not fetch_all(list) then return false end
  for i = list.head, list.tail do
    list.at[i] = list.at[i] > ahead and list.at[i] - ahead or 0
  end
  return true
end

-- Notes units at an instant, together with what came at the same one.
local function push(list, at, units)
  local i = list.tail
  if i >= list.head and last_of(list) == at then
    if list.units[i] + units > U32_MAX then units = U32_MAX - list.units[i] end
    list.units[i] = list.units[i] + units
    list.last_changed = true
  else
    append(list, at, units, 0)
  end
  list.used = list.used + units
end

-- The entry of an instant; nothing if there is none, or it cannot be read. Halves what is left to look at, so
-- that a long log costs no more than a dozen reads.
local function entry_at(list, instant)
  local low, high = list.head, list.tail
  while low <= high do
    local middle = (low + high - (low + high) % 2) / 2
    if not list.at[middle] then fetch(list, middle, middle) end
    local at = list.at[middle]
    if not at then return nil end
    if at == instant then return middle end
    if at < instant then low = middle + 1 else high = middle - 1 end
  end
end

-- Takes from the entry that the receipt names and no other.
local function refund_log(list, ch, at)
  if ch.receipt + ch.window <= at then return false end
  local i = entry_at(list, ch.receipt)
  if not i then return false end
  local units = ch.cost < list.units[i] and ch.cost or list.units[i]
  local left = list.units[i] - units
  if list.changed or list.rewrite then
    if not fetch_all(list) then return false end
    list.units[i], list.used, list.changed = left, list.used - units, true
    if left == 0 then take_out(list, i) end
    return true
  end
  -- As it is stored: one entry changes, and the header.
  local key = KEYS[list.k]
  if left > 0 then
    write('LSET', key, i, pack(ENTRY, list.at[i], left, list.number[i]))
  else
    write('LREM', key, '1', pack(ENTRY, list.at[i], list.units[i], list.number[i]))
  end
  local head = pack(LIST, FORMAT, list.alg, 0, list.ttl, list.window, list.known, list.used - units, list.next)
  write('LSET', key, '0', head)
  found[list.k] = nil
  return true
end
-- Leases: an entry for each holder, the first to lapse first.

-- Brings leases into what the quota and the clock could have made.
local function heal_leases(list, window, at)
  local slack = window < list.window and 0 or window
  if list.known <= at + window + slack or not fetch_all(list) then return false end
  list.known, list.window = at + window, window
  for i = list.head, list.tail do
    if list.at[i] > list.known then list.at[i] = list.known end
  end
  return true
end

local function lease(list, window, at, units)
  if list.known <= at then list.next = fmod(at, 4294967296) end
  local ends, number = at + window, list.next
  list.next = fmod(number + 1, 4294967296)
  if ends > list.known then list.known = ends end
  list.used, list.window = list.used + units, window
  if last_of(list) <= ends then return append(list, ends, units, number) end
  fetch_all(list) -- a longer lease was in force before, and all of it can be read: see `admits`
  append(list, ends, units, number)
  local i = list.tail
  while i > list.head and list.at[i - 1] > ends do
    list.at[i], list.units[i], list.number[i] = list.at[i - 1], list.units[i - 1], list.number[i - 1]
    i = i - 1
  end
  list.at[i], list.units[i], list.number[i] = ends, units, number
end

-- Nearly always the holder is there as it was let in; the server finds it fast.
local function release(list, ch, at)
  if ch.receipt <= at then return false end
  if not list.changed and not list.rewrite then
    if write('LREM', KEYS[list.k], '1', pack(ENTRY, ch.receipt, ch.cost, ch.detail)) == 1 then
      local head = pack(LIST, FORMAT, list.alg, 0, list.ttl, list.window, list.known, list.used - ch.cost, list.next)
      write('LSET', KEYS[list.k], '0', head)
      found[list.k] = nil
      return true
    end
  end
  if not fetch_all(list) then return false end
  for i = list.head, list.tail do
    if list.number[i] == ch.detail and list.at[i] <= ch.receipt then
      if list.at[i] <= at then return false end
      local units = ch.cost < list.units[i] and ch.cost or list.units[i]
      list.units[i], list.used, list.changed = list.units[i] - units, list.used - units, true
      if list.units[i] == 0 then take_out(list, i) end
      return true
    end
  end
  return false
end
-- Lists that have changed.

local function charge_list(list, ch, at)
  local head, used = live(list, ch.window, at)
  if not head then return end -- only of a settled charge: a check was judged on it before
  list.head, list.used = head, used
  if list.alg == LOG then
    list.window = ch.window
    push(list, at, ch.cost)
  else
    lease(list, ch.window, at, ch.cost)
  end
  list.changed = true
end

local function write_list(list)
  if not list.changed then return end
  local key, last = KEYS[list.k], list_expiry(list)
  local renew = not (last <= list.ttl)
  if renew then list.ttl = ttl_until(last) end
  local head = pack(LIST, FORMAT, list.alg, 0, list.ttl, list.window, list.known, list.used, list.next)
  local from, anew = list.stored + 1, list.rewrite or list.head > list.stored
  if anew then
    from, renew = list.head, true
    if list.exists then write('DEL', key) end
    write('RPUSH', key, head)
  else
    if list.last_changed then
      local n = list.stored
      write('LSET', key, '-1', pack(ENTRY, list.at[n], list.units[n], list.number[n]))
    end
    -- The header takes the place of the last entry that goes.
    if list.head > 1 then write('LTRIM', key, list.head - 1, '-1') end
    write('LSET', key, '0', head)
  end
  for i = from, list.tail do
    write('RPUSH', key, pack(ENTRY, list.at[i], list.units[i], list.number[i]))
  end
  if renew then write('PEXPIRE', key, px(list.ttl)) end
end
-- Packed values: the counters of a rule and subject in one string.
local WINDOWS_MAX = 8 -- of a quota and key, in which something counts

-- The i-th of the records in a value.
local function record(value, count, i)
  local tag, window, limit, burst = unpack_from(FIXED_PART, value, HEAD_BYTES + FIXED_BYTES * (i - 1) + 1)
  local a, c = unpack_from(MOVING_PART, value, moving_at(count) + MOVING_BYTES * (i - 1))
  local b = unpack_from(NUMBER_PART, value, b_at(count) + B_BYTES * (i - 1))
  if tag % 8 == SLIDING then return tag, window, a, window, c, b, limit, burst end
  return tag, window, a, b, c, limit, limit, burst
end

-- The window that is part of a counter's identity: one on the calendar is another one, and so is an aligned one.
local function window_of(ch)
  if ch.any_window then return 0 end
  if ch.aligned then return ch.window + 2 end
  return ch.calendar and ch.window + 1 or ch.window
end

-- Whether a counter would be in a window too many of its quota and key.
local function has_too_many_windows(ch)
  local value, of, windows = values[ch.k], window_of(ch), 0
  if ch.list or ch.kit or of == 0 or not value then return false end
  if ch.index and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) > now then return false end
  local count = byte(value, 2)
  for i = 1, count do
    local tag, window, a, b, c, e = record(value, count, i)
    if tag == ch.tag and window ~= of and window > 0 and expiry(ch.alg, a, b, c, e) > now then
      windows = windows + 1
    end
  end
  return windows >= WINDOWS_MAX
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

-- Writes a record into its key's value, or takes it out (without `ch.a`).
local function save(ch)
  local value, k, count = values[ch.k], ch.k, 0
  local fixed, bs, moving, n, ttl, is_there, of = {}, {}, {}, 0, 0, false, window_of(ch)
  local function keep(tag, window, a, b, c, e, limit, burst)
    n = n + 1
    fixed[n], moving[n] = pack(FIXED_PART, tag, window, limit, burst), pack(MOVING_PART, a, c)
    bs[n] = pack(NUMBER_PART, tag % 8 == SLIDING and e or b)
  end
  -- A bucket's fraction is told in the limit beside it.
  local limit, burst = ch.limit, ch.extra
  if ch.alg == TOKEN or ch.alg == LEAKY then limit = ch.e end
  if value then
    count = byte(value, 2)
    ttl = unpack_from(TTL, value, ttl_at(count))
  end
  for i = 1, count do
    local tag, window, a, b, c, e, was_limit, was_burst = record(value, count, i)
    if tag == ch.tag and (window == of or not ch.a and ch.all_windows) then
      is_there = true
      if ch.a then keep(tag, window, ch.a, ch.b, ch.c, ch.e, limit, burst) end
    -- Only what is added makes a value longer, so then what is over goes.
    elseif ch.index or not ch.a or expiry(tag % 8, a, b, c, e) > now then
      keep(tag, window, a, b, c, e, was_limit, was_burst)
    end
  end
  if ch.a and not is_there then keep(ch.tag, of, ch.a, ch.b, ch.c, ch.e, limit, burst) end
  if n == 0 then
    values[k] = false
    return mark(k, ANEW)
  end
  local how, last = IN_PLACE, ch.a and expiry(ch.alg, ch.a, ch.b, ch.c, ch.e) or 0
  if not (last <= ttl) then how, ttl = ANEW, ttl_until(last) end
  if count ~= n then how = ANEW end
  local rest = value and sub(value, value_bytes(count) + 1) or ''
  values[k] = pack(HEAD, FORMAT, n, #rest) .. concat(fixed) .. concat(bs) .. pack(TTL, ttl) .. concat(moving) .. rest
  mark(k, how)
end
-- Whether a charge alone would pass, and what becomes of its state.

-- The newest instant a counter has seen, and its window.
local function newest(ch)
  if ch.list then
    if ch.alg == LOG then return last_of(ch.list), ch.list.window end
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

-- Whether a charge alone would pass at `at`; heals what needs it.
local function admits(ch, at)
  if ch.list then
    if ch.alg == LOG then
      ch.healed = heal_log(ch.list, at)
    else
      ch.healed = heal_leases(ch.list, ch.window, at)
      if last_of(ch.list) > at + ch.window then fetch_all(ch.list) end -- `lease` will put one between them
    end
    local i, used = live(ch.list, ch.window, at)
    local cost = ch.cost > 0 and ch.cost or 1 -- for nothing, tell what one unit would meet
    ch.old = i and not ch.list.broken and boiled_down(ch.list, ch.limit, cost, i, used)
    if not ch.old then
      ch.broken = true
      return false
    end
    return used + cost <= ch.limit
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
    if charged then charge_list(ch.list, ch, at) elseif ch.healed then ch.list.changed = true end
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
               any_window = true },
      strikes = { alg = FIXED, k = k, tag = t[6], cost = 1, limit = t[8], extra = t[8], window = t[9] },
      offences = flags >= 4 and { alg = TOKEN, k = k, tag = t[7], cost = 1, limit = t[10], extra = t[10],
                                  window = t[11], cm = t[12], cr = t[13], rm = t[14], rr = t[15] },
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
    -- What is only looked at must not keep what healing does to it.
    if ch.list and (peek or deny_writes) then ch.list = copy_of(ch.list) end
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
    if has_too_many_windows(charges[i]) then return '\6', pos end
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

-- Each of the functions that refund says whether anything of the charge still counted.
local function refund_packed(ch, at)
  local is_there = false
  if ch.alg == FIXED then
    is_there = ch.receipt == ch.a and at < ch.a and ch.c > 0
    if is_there then ch.c = ch.c > ch.cost and ch.c - ch.cost or 0 end
  elseif ch.alg == SLIDING then
    roll(ch, ch.b, at)
    if ch.receipt == ch.a then
      is_there = ch.e > 0
      ch.e = ch.e > ch.cost and ch.e - ch.cost or 0
    elseif ch.receipt + ch.b == ch.a then
      is_there = ch.c > 0
      ch.c = ch.c > ch.cost and ch.c - ch.cost or 0
    end
  else
    -- Units drain in the order they came: what is left of a charge is owed until its receipt.
    local gm, gr, still, part = ch.cm, ch.cr, ch.receipt - at, fmod(ch.detail, ch.limit)
    still = still + (ch.detail - part) / ch.limit
    if ch.receipt < at then still, part = 0, 0 end
    if less(still, part, gm, gr) then gm, gr = still, part end
    local debt, rest = debt_of(ch, at)
    is_there = gm + gr > 0 and debt + rest > 0
    if less(gm, gr, debt, rest) then
      debt, rest = debt - gm, rest - gr
      if rest < 0 then debt, rest = debt - 1, rest + ch.limit end
    else
      debt, rest = 0, 0
    end
    ch.a, ch.c, ch.e = at + debt, rest, ch.limit
  end
  save(ch)
  return is_there
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

local function adjust_list(ch, at)
  local list = ch.list
  if ch.kind == 0 then
    if list.stored + list.tail == 0 then return false end
    if ch.alg == LOG then return refund_log(list, ch, at) end
    return release(list, ch, at)
  elseif ch.alg == LOG then
    if list_expiry(list) <= at then list.head, list.used = list.tail + 1, 0 end
    if ch.window > list.window then list.window = ch.window end
    local last = last_of(list)
    push(list, last > at and last or at, ch.cost)
    list.changed = true
  else
    charge_list(list, ch, at)
  end
end

local function adjust_kit(kit, ch)
  local units = ch.cost
  if ch.kind == 0 then
    -- Its time to live is known to a millisecond; another window ends much later.
    local ends = now + kit.left * 1000
    if not kit.exists or ends - ch.receipt > 2000 or ch.receipt - ends > 2000 or kit.count == 0 then return false end
    units = -(units < kit.count and units or kit.count)
  elseif not kit.exists and kit.add == 0 then
    kit.left = ch.window / 1000
  end
  kit.count, kit.add = kit.count + units, kit.add + units
  return true
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

local function take_note(ch)
  values[ch.note] = pack(NOTE, FORMAT, ch.given + ch.cost)
  found[ch.note] = ch.until_when
  mark(ch.note, ANEW)
end

-- Changes one charge; how many units of it were given back.
local function adjust_one(ch)
  load(ch) -- again: two charges may share a value
  if ch.note > 0 then look_up_note(ch) end
  -- No receipt is of a quota that lets nothing pass.
  if ch.cost == 0 or ch.limit == 0 then return 0 end
  local at = now
  local seen, window = newest(ch)
  if seen > at and seen - at <= window then at = seen end
  local is_there = false
  if ch.list then
    is_there = adjust_list(ch, at)
  elseif ch.kit then
    is_there = adjust_kit(ch.kit, ch)
  elseif ch.kind == 1 then
    top_up_packed(ch, at)
  elseif ch.index then
    is_there = refund_packed(ch, at)
  end
  if ch.kind == 1 or not is_there then return 0 end
  if ch.note > 0 then take_note(ch) end
  return ch.cost
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
    ch.note, ch.whole, ch.until_when = note, in_all, until_when
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
    failure = failure or load(ch) or ch.note > 0 and not look_up_note(ch) and unreadable(ch.note) or nil
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

local function reset(alg, pos, deny_writes)
  local ch = { alg = alg, all_windows = true }
  ch.k, ch.tag, pos = unpack_from('<I2I4', blob, pos)
  local failure = load(ch)
  if failure then return failure, pos end
  local list, kit = ch.list, ch.kit
  -- There, or about to be: an earlier item of the batch may have made it.
  local is_there = ch.index or list and (list.exists or list.changed) or kit and (kit.exists or kit.add ~= 0)
  if is_there and deny_writes then return pack('<BB', 7, #deny_writes) .. deny_writes, pos end
  if ch.index then
    ch.a = nil
    save(ch)
  elseif is_there then
    found[ch.k], values[ch.k] = nil, false
    write('DEL', KEYS[ch.k])
  end
  return is_there and '\14' or '\15', pos
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
local PLAN, PLAN_BYTES = '<BBI2', 4             -- then its groups or penalties, then its charges
local GROUP_BYTES = 3
local TERMS, TERMS_BYTES = '<I4dI4dI4', 28
local CHARGE_BYTES = 55
-- A value: B format, B counters, I2 bytes at its end; for each counter I4 tag, d window, I4 limit, I4 burst, which
-- seldom change, and d b for each; d the end of the time to live; for each counter d a, I4 c.
-- What a, b and c are is with the algorithms. Limit and burst are those of the last charge. What is at the
-- end is kept as it is: none yet, the names of quotas later.
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
