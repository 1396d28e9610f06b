-- Lists that have changed.

local function charge_list(list, ch, at)
  local head, used = live(list, ch.window, at)
  if not head then return end -- only of a settled charge: a check was judged on it before
  list.head, list.used = head, used
  if list.alg == LOG then
    list.window = ch.window
    push(list, at, ch.cost)
  else
    lease(list, ch.window, at, ch.cost)
  end
  list.changed = true
end

local function write_list(list)
  if not list.changed then return end
  local key, last = KEYS[list.k], list_expiry(list)
  local renew = not (last <= list.ttl)
  if renew then list.ttl = ttl_until(last) end
  local head = pack(LIST, FORMAT, list.alg, 0, list.ttl, list.window, list.known, list.used, list.next)
  local from, anew = list.stored + 1, list.rewrite or list.head > list.stored
  if anew then
    from, renew = list.head, true
    if list.exists then write('DEL', key) end
    write('RPUSH', key, head)
  else
    if list.last_changed then
      local n = list.stored
      write('LSET', key, '-1', pack(ENTRY, list.at[n], list.units[n], list.number[n]))
    end
    -- The header takes the place of the last entry that goes.
    if list.head > 1 then write('LTRIM', key, list.head - 1, '-1') end
    write('LSET', key, '0', head)
  end
  for i = from, list.tail do
    write('RPUSH', key, pack(ENTRY, list.at[i], list.units[i], list.number[i]))
  end
  if renew then write('PEXPIRE', key, px(list.ttl)) end
end
