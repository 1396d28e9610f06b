"""`application_kit.fastapi.redis`: a dependency by its name."""

from __future__ import annotations

from ..._native import Store
from .._connections import store_named

__all__ = ["RedisDependency"]


class RedisDependency:
    """`Depends(RedisDependency("ratelimit"))`: what `redis_client=` and the calls about overrides take.

    It is a `Store`, not a client of redis-py: for other uses of Redis, keep Application Kit's.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self) -> Store:
        return store_named(self.name)
