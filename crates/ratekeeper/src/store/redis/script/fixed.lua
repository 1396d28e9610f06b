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
