"""The legacy fields beside the standard's, made of what a response says already."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._legacy import legacy_of


class LegacyRateLimitHeaderMiddleware:
    """Adds RateLimit-Limit, -Remaining and -Reset, or X-RateLimit-*, from the last policy in RateLimit-Policy and RateLimit.

    What is there of them already stays.
    """

    def __init__(self, app: ASGIApp, use_x_ratelimit_prefix: bool = False) -> None:
        self.app = app
        self._prefix = b"x-ratelimit-" if use_x_ratelimit_prefix else b"ratelimit-"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = self._with_legacy(list(message.get("headers", ())))
            await send(message)

        await self.app(scope, receive, told)

    def _with_legacy(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        fields = {name.lower(): value for name, value in headers}
        for name, value in legacy_of(fields.get(b"ratelimit-policy", b""), fields.get(b"ratelimit", b"")):
            if self._prefix + name not in fields:
                headers.append((self._prefix + name, value))
        return headers
