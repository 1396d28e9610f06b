"""Throttles for Django REST framework, on the stores of RATELIMIT_STORES.

    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["ratekeeper.django.throttling.UserRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"user": "1000/day"},
    }

Rates, scopes and `get_cache_key` are those of `rest_framework.throttling`; what differs is that counting is exact, also
with several processes, and that responses have the standard's header fields.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from rest_framework import throttling as _theirs  # type: ignore[import-untyped, unused-ignore]

from .._native import Decision, Limiter, Quota
from . import _keys, _settings
from ._exceeded import RequestLimits

__all__ = ["AnonRateThrottle", "ScopedRateThrottle", "SimpleRateThrottle", "UserRateThrottle"]

# An exact log of more would cost too much.
_ENTRIES_MAX = 10_000


@functools.lru_cache(maxsize=256)
def _quota(limit: int, seconds: int) -> Quota:
    return Quota(f"{limit}/{seconds}s {'sliding_log' if limit <= _ENTRIES_MAX else 'sliding_window'}")


class SimpleRateThrottle(_theirs.SimpleRateThrottle):  # type: ignore[misc]
    """`rest_framework.throttling.SimpleRateThrottle`: subclasses say `scope` and `get_cache_key`.

    `store`: a name in RATELIMIT_STORES.
    """

    store: ClassVar[str] = "default"
    # Nothing is kept in Django's cache.
    cache: ClassVar[Any] = None
    decision: Decision | None = None

    def allow_request(self, request: Any, view: Any) -> bool:
        """Counts a request if it has room."""
        mode = _settings.mode()
        if self.rate is None or mode == "off":
            return True
        self.key = self.get_cache_key(request, view)
        if self.key is None:
            return True
        self.decision = self._limiter().check(str(self.key), mode=mode)
        RequestLimits.of(request).tally.add(self.decision)
        return self.decision.allowed

    def wait(self) -> float | None:
        """Seconds until the same request would pass: what Retry-After is made of."""
        return None if self.decision is None else self.decision.retry_after

    def get_ident(self, request: Any) -> str:
        """The address of the client, by RATELIMIT_TRUSTED_PROXIES."""
        return _keys.address_of(getattr(request, "_request", request))

    def _limiter(self) -> Limiter:
        quota = _quota(self.num_requests, self.duration)
        return _settings.limiter_of(self.store, self.scope or "throttle", quota, _settings.on_outage())


class AnonRateThrottle(SimpleRateThrottle, _theirs.AnonRateThrottle):  # type: ignore[misc]
    """Limits those who are not logged in, by their address."""


class UserRateThrottle(SimpleRateThrottle, _theirs.UserRateThrottle):  # type: ignore[misc]
    """Limits users, and others by their address."""


class ScopedRateThrottle(SimpleRateThrottle, _theirs.ScopedRateThrottle):  # type: ignore[misc]
    """Limits views that have a `throttle_scope`."""

    def allow_request(self, request: Any, view: Any) -> bool:
        """Counts a request of a view with a scope."""
        self.scope = getattr(view, self.scope_attr, None)
        if not self.scope:
            return True
        self.rate = self.get_rate()
        self.num_requests, self.duration = self.parse_rate(self.rate)
        return SimpleRateThrottle.allow_request(self, request, view)
