-- Writes what changed on the short way.

-- What MGET passes over may be there all the same, and not be ours.
if new and call('EXISTS', unpack(new, 1, absent)) > 0 then return general() end
for i = 1, writes do
  local k = i == 1 and first_dirty or dirty[i]
  local value, moving, ttl, reply = values[k], moved[k], lives and lives[k]
  -- The first write may be refused: then nothing has happened, and the general way tells why.
  local write = i == 1 and try or call
  if ttl then
    local left = ttl - now
    left = (left - left % 1000) / 1000 + 1
    if moving then
      local at = HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES) * #moving / MOVING_BYTES
      value = sub(value, 1, at) .. moving .. sub(value, at + #moving + 1)
    end
    reply = write('SET', KEYS[k], value, 'PX', given and left < TEST_TTL and TEST_TTL or left)
  elseif others and others[k] then
    if not moving then -- looked at after it was changed
      local count = byte(value, 2)
      local at = HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES) * count
      moving = sub(value, at + 1, at + MOVING_BYTES * count)
    end
    reply = write('SETRANGE', KEYS[k], others[k], moving)
  elseif not moving then
    reply = write('SETRANGE', KEYS[k], '0', value)
  else
    local size = #moving
    local at = size == MOVING_BYTES and ONE_AT or size == 4 * MOVING_BYTES and FOUR_AT
        or HEAD_BYTES + TTL_BYTES + (FIXED_BYTES + B_BYTES) * size / MOVING_BYTES
    reply = write('SETRANGE', KEYS[k], at, moving)
  end
  -- A length is no refusal, and to ask for its type costs more.
  if i == 1 and reply ~= #value and type(reply) == 'table' and reply.err then return general() end
end
if o == 4 then return out[1] .. out[2] .. out[3] .. out[4] end -- a single check of a value that is there
return table.concat(out, '', 1, o)
