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
