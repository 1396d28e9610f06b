"""Transports for httpx, around any other transport.

    client = httpx.AsyncClient(transport=AsyncRateLimitTransport(limiter, httpx.AsyncHTTPTransport()))
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from ._limiter import OutgoingLimiter

__all__ = ["AsyncRateLimitTransport", "RateLimitTransport"]


# Neither imports httpx: the client asks for these methods only.
class RateLimitTransport:
    """Waits for a slot of the host before every request, and reads what its response says of limits."""

    def __init__(self, limiter: OutgoingLimiter, transport: Any, *, patience: float | None = None) -> None:
        self._limiter, self._transport, self._patience = limiter, transport, patience

    def handle_request(self, request: Any) -> Any:
        """One request."""
        with self._limiter.slot(request.url.host, patience=self._patience) as slot:
            response = self._transport.handle_request(request)
            slot.observe(response.status_code, response.headers)
            return response

    def close(self) -> None:
        """Closes the transport within."""
        self._transport.close()

    def __enter__(self) -> RateLimitTransport:
        self._transport.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.__exit__(kind, error, trace)


class AsyncRateLimitTransport:
    """The same for `httpx.AsyncClient`."""

    def __init__(self, limiter: OutgoingLimiter, transport: Any, *, patience: float | None = None) -> None:
        self._limiter, self._transport, self._patience = limiter, transport, patience

    async def handle_async_request(self, request: Any) -> Any:
        """One request."""
        async with self._limiter.slot(request.url.host, patience=self._patience) as slot:
            response = await self._transport.handle_async_request(request)
            slot.observe(response.status_code, response.headers)
            return response

    async def aclose(self) -> None:
        """Closes the transport within."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncRateLimitTransport:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)
