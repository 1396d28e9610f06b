"""The legacy fields beside the standard's, made of what a response says already."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Longer fields are no policies of ours.
_FIELD_BYTES_MAX = 16_384
_PARAMETER = re.compile(rb";\s*([a-z]+)=(\d{1,18})")


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
        policy, state = _last(fields.get(b"ratelimit-policy", b"")), _last(fields.get(b"ratelimit", b""))
        legacy = ((b"limit", policy.get(b"q")), (b"remaining", state.get(b"r")), (b"reset", state.get(b"t")))
        for name, value in legacy:
            if value is not None and self._prefix + name not in fields:
                headers.append((self._prefix + name, value))
        return headers


def _last(field: bytes) -> dict[bytes, bytes]:
    """The parameters of the last member of a list whose members begin with a quoted name."""
    if len(field) > _FIELD_BYTES_MAX:
        return {}
    # A name may hold anything that prints: what is in quotes separates nothing.
    bare = re.sub(rb'"(?:[^"\\]|\\.)*"', b"name", field)
    return dict(_PARAMETER.findall(bare.rpartition(b",")[2]))
