"""Calls to other services, at the rate that these allow.

    from ratekeeper import Store
    from ratekeeper.outgoing import OutgoingLimiter

    limiter = OutgoingLimiter(Store.redis("redis://127.0.0.1:6379"), {"api.example.com": "10/s"})

    async with limiter.slot("api.example.com") as slot:
        response = await client.get("https://api.example.com/items")
        slot.observe(response.status_code, response.headers)

A slot waits until the limit has room, and no longer than `patience`. What the other side says of its own limits holds, too:
after a 429 or 503 with `Retry-After`, or when its `RateLimit` has nothing left, calls to that host wait. Transports for
httpx and requests do all of that: `ratekeeper.outgoing.httpx` and `ratekeeper.outgoing.requests`.
"""

from ._limiter import OutgoingLimiter, OutgoingLimitExceeded, Slot

__all__ = ["OutgoingLimitExceeded", "OutgoingLimiter", "Slot"]
