-- Whether a charge alone would pass, and what becomes of its state.

-- The newest instant a counter has seen, and its window.
local function newest(ch)
  if ch.list then
    if ch.alg == LOG then
      local list = list_of(ch)
      return last_in(list) - list.shift, list.window
    end
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

-- Whether other windows leave no room for one in which nothing counts yet.
local function has_too_many_lists(ch)
  local family, others = ch.list, 0
  for i = 1, family.n do
    local list = family[i]
    if list_expiry(list, list.shift) > now then
      if list.own == ch.rm then return false end
      others = others + 1
    end
  end
  return others >= WINDOWS_MAX
end

-- Whether a charge on a list would pass. The list stays as it is: what a step of the clock means for it is one
-- number, which the charge has until it is committed.
local function list_admits(ch, at)
  local list = list_of(ch)
  ch.shift = shift_at(list, at)
  ch.healed = ch.shift ~= list.shift
  local used, ends, b, gone = live(list, ch.window, at, ch.shift)
  local cost = ch.cost > 0 and ch.cost or 1 -- for nothing, tell what one unit would meet
  local has_room = used and used + cost <= ch.limit
  ch.old = used and is_instant(at + ch.shift) and (not has_room or can_append(list, ch.shift, at))
      and boiled_down(list, ch.limit, cost, ch.shift, used, ends, b, gone)
  if not ch.old then ch.broken = true end
  return has_room
end

-- Whether a charge alone would pass at `at`; heals what needs it.
local function admits(ch, at)
  if ch.list then
    return list_admits(ch, at)
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
    if charged then
      charge_list(ch, ch.shift, at)
    elseif ch.healed then
      list_of(ch).shift, ch.list.changed = ch.shift, true
    end
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
