-- Writing: how long keys live, which values have changed, what the server refuses.

-- A time to live for a state that lasts until `last`, with slack so that it need not be
-- renewed with every hit.
local function ttl_until(last)
  local left = last - now
  return last + (left < SLACK_MIN and SLACK_MIN or left > SLACK_MAX and SLACK_MAX or left)
end

local function px(ttl)
  local left = ttl - now
  local millis = (left - left % 1000) / 1000 + 1
  -- No server takes a time that is none, and after a first write none may be refused.
  if not (millis <= TTL_MAX) then millis = TTL_MAX end
  local least = given and TEST_TTL or 1 -- also for what is over: no server takes less
  return millis < least and least or millis
end

-- Ways to write a string.
local IN_PLACE, ANEW = 1, 2

local function mark(k, how)
  local known = marks[k]
  if not known then
    to_write = to_write + 1
    dirty[to_write] = k
    marks[k] = how
  elseif how > known then
    marks[k] = how
  end
end

-- The first write may be refused (memory, a replica, a disk that is full); nothing has
-- happened then. Once one has passed, the server refuses none of the others.
local refused, written
local function write(...)
  if refused then return end
  if written then return call(...) end
  local reply = try(...)
  if type(reply) == 'table' and reply.err then
    refused = reply.err
  else
    written = true
  end
  return reply
end

-- What is at a key; an error only if that is of another type. Anything else that a server
-- may object to (its user must not read) is not the key's fault and ends the batch.
local function look(...)
  local reply = try(...)
  if type(reply) == 'table' and reply.err and not string.find(reply.err, 'WRONGTYPE', 1, true) then
    return call(...)
  end
  return reply
end
