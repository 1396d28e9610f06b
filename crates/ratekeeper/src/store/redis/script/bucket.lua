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
