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
