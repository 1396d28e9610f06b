-- Overrides on the short way: of a group of one counter, in numbers as we write them. Others are for the general way.
local known, sayings, force -- made only if there is an override: most batches have none
if any_override then
  local find_parts, rest_of = string.match, math.fmod
  local LIMIT_DIGITS, SECONDS_DIGITS = 9, 8
  local COST_AFTER = 8 -- bytes of a charge
  -- What the hash at a key says: its name if it was not read yet, false if there is none or nothing in it, else one
  -- of the `sayings` of projects (7) and organisations (8), which have its numbers as text and the groups under it.
  known = { unpack(KEYS, 1, strings + overrides) }
  sayings = { [7] = {}, [8] = {} }

  -- `units` times window / limit; nothing if that needs more digits than a number has.
  local function span(units, window, limit)
    local rest = rest_of(window, limit)
    local product = units * rest
    if product >= EXACT then return nil end
    local part = rest_of(product, limit)
    return units * ((window - rest) / limit) + (product - part) / limit, part
  end

  -- How the value of a bucket begins under other terms, and those: they keep the proportion of burst and limit.
  local function forced_bucket(own, charge_at, limit, window)
    local _, _, was_limit, burst = unpack_from('<I4dI4I4', own, HEAD_BYTES + 1)
    local product = burst * limit
    if product >= EXACT then return nil end
    burst = (product - rest_of(product, was_limit)) / was_limit
    burst = burst < 1 and 1 or burst > LIMIT_MAX and LIMIT_MAX or burst
    local cm, cr = span(unpack_from('<I4', blob, charge_at + COST_AFTER), window, limit)
    local rm, rr = span(burst, window, limit)
    if not cm or not rm or rm >= WINDOW_MAX then return nil end
    local ahead = rr > 0 and rm + 1 or rm
    ahead = ahead + (1000 - ahead % 1000) % 1000
    return pack('<dI4I4d', window, limit, burst, ahead), cm, cr, rm, rr
  end

  -- A group under an override. Nothing if the general way must see to it.
  force = function(group, saying)
    local limit, seconds = find_parts(saying.limit, '^%d+$'), nil
    if not limit or #limit > LIMIT_DIGITS then return nil end
    if saying.seconds then
      seconds = find_parts(saying.seconds, '^%d+$')
      if not seconds or #seconds > SECONDS_DIGITS then return nil end
    end
    local own = group[FRONT]
    local window = seconds and seconds * 1000000 or unpack_from(NUMBER_PART, own, HEAD_BYTES + TAG_BYTES + 1)
    limit = limit + 0
    if limit == 0 or window == 0 or window > WINDOW_MAX then return nil end
    local head, a, b, c, d
    if group[KIND] == 2 then
      head, a, b, c, d = pack('<dI4I4d', window, limit, limit, window), window, group[FIRST_TERM + 2], 0, 0
    else
      head, a, b, c, d = forced_bucket(own, group.charge_at, limit, window)
      if not head then return nil end
    end
    local told = pack('<Bdd', saying.level, limit, seconds and window or -1)
    return { group[KIND], 1, group[ITEM], group[FRONT_BYTES], group[BYTES], group[TAIL], '', told .. '\0',
             false, sub(own, 1, HEAD_BYTES + TAG_BYTES) .. head, told .. group[TOLD], limit, a, b, c, d }
  end
end
