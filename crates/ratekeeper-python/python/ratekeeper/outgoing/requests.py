"""An adapter for requests.

    session = requests.Session()
    for prefix in ("https://", "http://"):
        session.mount(prefix, RateLimitAdapter(limiter))
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter

from ._limiter import OutgoingLimiter

__all__ = ["RateLimitAdapter"]


class RateLimitAdapter(HTTPAdapter):
    """Waits for a slot of the host before every request, and reads what its response says of limits."""

    def __init__(self, limiter: OutgoingLimiter, *, patience: float | None = None, **options: Any) -> None:
        self._limiter, self._patience = limiter, patience
        super().__init__(**options)

    def send(self, request: Any, *arguments: Any, **named: Any) -> Any:
        """One request."""
        host = urlsplit(request.url).hostname or ""
        with self._limiter.slot(host, patience=self._patience) as slot:
            response = super().send(request, *arguments, **named)
            slot.observe(response.status_code, response.headers)
            return response
