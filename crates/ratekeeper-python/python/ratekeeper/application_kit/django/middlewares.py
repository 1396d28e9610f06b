"""The middleware of sites: header fields, legacy ones included, and the answer to denied requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ...django import RateLimitMiddleware, _settings
from ...django._exceeded import RequestLimits
from ...django._middleware import told
from .._legacy import legacy_of

__all__ = ["ApplicationKitApiMiddleware"]


class ApplicationKitApiMiddleware(RateLimitMiddleware):
    """What Application Kit's middleware does about limits. Legacy fields, which are those of the last policy, are sent unless
    RATELIMIT_LEGACY_HEADERS is False.
    """

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        _settings.send_legacy()
        super().__init__(get_response)

    def _stores(self) -> Collection[str]:
        # A site without limits has no Redis for them.
        return {*_settings.named(), *_settings.provided()}

    def _told(self, limits: RequestLimits, response: HttpResponseBase) -> HttpResponseBase:
        response = told(limits, response, _settings.http_options(has_legacy=False))
        if _settings.sends_legacy():
            _tell_legacy(response)
        return response


def _tell_legacy(response: HttpResponseBase) -> None:
    """What is there of them already stays."""
    fields = (response.headers.get(name, "").encode() for name in ("RateLimit-Policy", "RateLimit"))
    prefix = "X-RateLimit" if _settings.uses_x_prefix() else "RateLimit"
    for name, value in legacy_of(*fields):
        said = int(value)
        if name == b"reset" and _settings.counts_from_1970():
            said += int(time.time())
        response.headers.setdefault(f"{prefix}-{name.decode().capitalize()}", str(said))
