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
