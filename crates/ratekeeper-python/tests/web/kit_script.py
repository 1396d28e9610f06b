"""What Application Kit's script does, written from its description, and run by redis-py: ours is held against it."""

from __future__ import annotations

import dataclasses

import redis

# One atomic step: the override of the project, else of its organisation, else the defaults; then the count in its window. What
# would cross the limit is over it, and counts nothing.
SCRIPT = """
local limit, window, amount = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
for place = 2, 3 do
  local limits = redis.call('HMGET', KEYS[place], 'max_requests', 'expiry')
  if limits[1] then
    limit, window = tonumber(limits[1]), tonumber(limits[2])
    break
  end
end
local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if count + amount > limit then
  return {1, count, math.max(redis.call('TTL', KEYS[1]), 0), limit, window}
end
count = redis.call('INCRBY', KEYS[1], amount)
if count == amount then
  redis.call('EXPIRE', KEYS[1], window)
end
return {0, count, redis.call('TTL', KEYS[1]), limit, window}
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
        keys = [f"ratelimit:{who}", f"ratelimit_override:{who}", f"ratelimit_org_override:{endpoint}:{organisation}"]
        said: list[int] = self.client.register_script(SCRIPT)(keys, [max_requests, expiry, amount])
        return said
