-- Token and leaky buckets. a: the instant it is full again, c / e: and a fraction of a microsecond.

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

local function bucket_step(alg, a, c, e, at, cost, limit, window, cm, cr, rm, rr)
  local debt, rest = bucket_debt(a, c, e, at, limit)
  local most = alg == TOKEN and rm or rm + window
  if less(most, rr, debt, rest) and (e ~= limit or debt > most + window) then return 2 end
  local owed, part = bucket_sum(debt, rest, cm, cr, limit)
  if alg == TOKEN then
    if less(rm, rr, owed, part) then return 1 end
  elseif cost > limit or less(rm, rr, debt, rest) then
    return 1
  end
  return 0, at + owed, 0, part, limit
end
