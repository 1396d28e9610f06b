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
  -- The count of a sliding window is stored as a number that can be any.
  if alg == SLIDING and not (e >= 0 and e <= 4294967295 and e % 1 == 0) then return false end
  return is_length(b)
end

-- From when on a state says no more than none.
local function expiry(alg, a, b, c, e)
  if alg == TOKEN or alg == LEAKY then return c > 0 and a + 1 or a end
  if alg == FIXED then return a end
  if e > 0 then return a + 2 * b end
  return c > 0 and a + b or 0
end
