"""Limits in Django: a decorator for views, and a middleware that answers and tells.

    # settings.py
    MIDDLEWARE = ["ratekeeper.django.RateLimitMiddleware", ...]
    RATELIMIT_STORES = {"default": "redis://127.0.0.1:6379"}
    RATELIMIT_PROJECT = "myapp.auth.project_of"

    # views.py
    @authenticate
    @rate_limit(max_requests=100, expiry=60)
    def search(request): ...
"""

from .._modes import RateLimitMode
from .._result import RateLimitResult
from ._decorator import endpoint_of, rate_limit
from ._exceeded import HttpException, RateLimitExceeded
from ._middleware import RateLimitMiddleware
from ._settings import get_rate_limit_mode, is_rate_limit_disabled, store_named
from ._usage import ALL, UNSAFE, Usage, get_usage, is_ratelimited, ratelimit

__all__ = [
    "ALL",
    "UNSAFE",
    "Usage",
    "get_usage",
    "is_ratelimited",
    "ratelimit",
    "HttpException",
    "RateLimitExceeded",
    "RateLimitMiddleware",
    "RateLimitMode",
    "RateLimitResult",
    "endpoint_of",
    "get_rate_limit_mode",
    "is_rate_limit_disabled",
    "rate_limit",
    "store_named",
]
