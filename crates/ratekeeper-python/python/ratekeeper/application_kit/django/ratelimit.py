"""`application_kit.django.ratelimit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...django import HttpException, RateLimitExceeded, RateLimitMode, RateLimitResult
from ...django import get_rate_limit_mode, is_rate_limit_disabled
from ...django import rate_limit as _rate_limit
from ...django._settings import provide
from ..._native import Store
from .._connections import store_named, store_of
from ..ratelimit import RATE_LIMIT_ERROR_MESSAGE

__all__ = [
    "RATE_LIMIT_ERROR_MESSAGE",
    "HttpException",
    "RateLimitExceeded",
    "RateLimitMode",
    "RateLimitResult",
    "get_rate_limit_mode",
    "is_rate_limit_disabled",
    "rate_limit",
]

View = TypeVar("View", bound=Callable[..., Any])


def rate_limit(
    max_requests: int,
    expiry: int = 1,
    endpoint_name: str | None = None,
    redis_dependency: str = "ratelimit",
    policy_name: str = "requests",
    *,
    redis_client: Any = None,
) -> Callable[[View], View]:
    """At most `max_requests` in `expiry` seconds for each project on this endpoint.

    `redis_dependency`: a name in RATELIMIT_STORES, or else what `configure` and the environment say of it. `redis_client`:
    one of redis-py, whose settings are read.
    """
    name = redis_dependency
    if redis_client is not None:
        store: Store = store_of(redis_client)
        name = f"{redis_dependency} of {id(store):x}"
        provide(name, lambda: store)
    else:
        provide(name, lambda: store_named(redis_dependency))
    return _rate_limit(
        max_requests, expiry, endpoint_name, name, policy_name,
        span="application_kit.django.ratelimit.rate_limit", is_kit=True,
    )
