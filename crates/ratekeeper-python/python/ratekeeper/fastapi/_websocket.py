"""What a WebSocket learns of limits: its opening is a request like others, and is counted as one."""

from __future__ import annotations

from starlette.types import Message, Scope, Send

from .._native import Denial, HttpOptions
from ._request import RequestLimits

# What a WebSocket is closed with if who opens it may not.
POLICY_VIOLATION = 1008
# Servers that have it can answer an opening with any status; others answer all with 403.
_EXTENSION = "websocket.http.response"


def answer_of(denial: Denial) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The body and the header fields of the answer to a denied request."""
    body = denial.body.encode()
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in denial.headers]
    return body, [*headers, (b"content-length", str(len(body)).encode())]


def telling_socket(limits: RequestLimits, options: HttpOptions, scope: Scope, send: Send) -> Send:
    """Puts limits on the answer to the opening; a denied one is answered like a request, if the server can do that."""
    is_open = False

    async def told(message: Message) -> None:
        nonlocal is_open
        if message["type"] == "websocket.accept":
            is_open = True
            if limits.tally:
                message["headers"] = limits.tally.onto(message.get("headers", ()), options)
        denial = limits.denial
        if message["type"] == "websocket.close" and not is_open and denial is not None:
            if _EXTENSION in (scope.get("extensions") or {}):
                body, headers = answer_of(denial)
                headers = list(limits.tally.onto(headers, options))
                await send({"type": f"{_EXTENSION}.start", "status": denial.status, "headers": headers})
                return await send({"type": f"{_EXTENSION}.body", "body": body})
        await send(message)

    return told
