"""The middleware of sites: header fields, legacy ones included, and the answer to denied requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest

from ...django import RateLimitMiddleware
from ...django._settings import send_legacy

__all__ = ["ApplicationKitApiMiddleware"]


class ApplicationKitApiMiddleware(RateLimitMiddleware):
    """What Application Kit's middleware does about limits. Legacy fields are sent unless RATELIMIT_LEGACY_HEADERS is False."""

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        send_legacy()
        super().__init__(get_response)
