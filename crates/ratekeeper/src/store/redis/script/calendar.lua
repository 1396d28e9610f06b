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
