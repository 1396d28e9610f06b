"""The script of Application Kit's article, written from its description, and run by redis-py: ours is held against it."""

from __future__ import annotations

import dataclasses

import redis

# As the article has it, with the organisation's override behind the project's, which the reference added, and the window behind
# its four values, of which the reference makes `w`. The first request of a window is written whatever it costs.
SCRIPT = """
local rate_limit_key = KEYS[1]
local max_requests = tonumber(ARGV[1])
local expiry = tonumber(ARGV[2])
local increment_amount = tonumber(ARGV[3]) or 1

for place = 2, #KEYS do
  local override = redis.call('HGETALL', KEYS[place])
  if #override > 0 then
    for i = 1, #override, 2 do
      if override[i] == 'max_requests' then
        max_requests = tonumber(override[i + 1])
      elseif override[i] == 'expiry' then
        expiry = tonumber(override[i + 1])
      end
    end
    break
  end
end

local count = tonumber(redis.call('GET', rate_limit_key)) or -1
local is_over_limit = 0
if count == -1 then
  redis.call('SET', rate_limit_key, increment_amount)
  redis.call('EXPIRE', rate_limit_key, expiry)
  count = increment_amount
  if count > max_requests then
    is_over_limit = 1
  end
elseif count + increment_amount > max_requests then
  is_over_limit = 1
else
  count = redis.call('INCRBY', rate_limit_key, increment_amount)
end

local ttl = redis.call('TTL', rate_limit_key)
return {is_over_limit, count, ttl, max_requests, expiry}
"""


@dataclasses.dataclass(frozen=True)
class TheirScript:
    """Their limiter on a server."""

    client: redis.Redis

    def check(
        self, endpoint: str, organisation: int, project: int, max_requests: int, expiry: int, amount: int = 1
    ) -> list[int]:
        """What the script says of a request: over the limit, count, time to live, limit, window."""
        who = f"{endpoint}:{organisation}:{project}"
        places = [f"ratelimit_override:{who}", f"ratelimit_org_override:{endpoint}:{organisation}"]
        return self.check_key(f"ratelimit:{who}", max_requests, expiry, amount, places)

    def check_key(
        self, key: str, max_requests: int, expiry: int, amount: int = 1, overrides: list[str] | None = None
    ) -> list[int]:
        """The same of any key."""
        said: list[int] = self.client.register_script(SCRIPT)([key, *(overrides or [])], [max_requests, expiry, amount])
        return said
