-- Whether a charge alone would pass, and what becomes of its state.

-- The newest instant a counter has seen, and its window.
local function newest(ch)
  if ch.list then
    if ch.alg == LOG then return last_of(ch.list), ch.list.window end
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

-- Whether a charge alone would pass at `at`; heals what needs it.
local function admits(ch, at)
  if ch.list then
    if ch.alg == LOG then
      ch.healed = heal_log(ch.list, at)
    else
      ch.healed = heal_leases(ch.list, ch.window, at)
      if last_of(ch.list) > at + ch.window then fetch_all(ch.list) end -- `lease` will put one between them
    end
    local i, used = live(ch.list, ch.window, at)
    local cost = ch.cost > 0 and ch.cost or 1 -- for nothing, tell what one unit would meet
    ch.old = i and not ch.list.broken and boiled_down(ch.list, ch.limit, cost, i, used)
    if not ch.old then
      ch.broken = true
      return false
    end
    return used + cost <= ch.limit
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
    if charged then charge_list(ch.list, ch, at) elseif ch.healed then ch.list.changed = true end
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
