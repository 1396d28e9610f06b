"""The middleware: rules of policies at the door, header fields on every response.

Plain ASGI: responses stream through, and nothing runs in another task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._native import Decision, HttpOptions, Request, ServiceLimiter, Tally
from .._tracing import entry_span
from .._web import Mode, denial_of
from ._endpoint import find_endpoint
from ._places import Places, are_expected
from ._settings import SCOPE_KEY, RequestLimits, Settings


class RateLimitMiddleware:
    """Puts the header fields of all limits that a request met on its response, whatever response that is.

    With `settings.service` it also applies the rules of that service's policy, before
    anything is routed.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.service: ServiceLimiter | None = None
        if settings.service is not None:
            if settings.policies is None:
                raise ValueError("service: got one without policies; expected policies=PolicyLimiter(...) too")
            self.service = settings.policies.service(settings.service)

    # Neither this nor `told` below is a coroutine: each would cost a request as much as its check.
    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self.app(scope, receive, send)
        outer: RequestLimits | None = scope.get(SCOPE_KEY)
        if outer is None:
            limits = RequestLimits(self.settings, Tally(), entry_span())
            send = _telling(limits.tally, self.settings.options, send)
        else:
            limits = RequestLimits(self.settings, outer.tally, outer.span)
        scope[SCOPE_KEY] = limits
        if self.service is not None and (mode := limits.mode()) != "off":
            return self._guarded(self.service, limits, mode, scope, receive, send)
        if are_expected():
            return Places().watch(self.app, scope, receive, send)
        return self.app(scope, receive, send)

    async def _guarded(
        self, service: ServiceLimiter, limits: RequestLimits, mode: Mode, scope: Scope, receive: Receive, send: Send
    ) -> None:
        facts = self._facts(scope)
        needs = service.needs_of(Request(**facts))
        if needs.route:
            # The application stands in the scope before its middleware runs.
            facts["route"] = find_endpoint(getattr(scope.get("app"), "routes", ()), scope)
        if needs.identity:
            facts["identity"] = self._identity(HTTPConnection(scope))
        if needs.body and _is_json(scope):
            body = _Body(receive, self.settings.body_bytes_max)
            facts["body"] = await body.read(self.settings.body_wait)
            receive = body.receive
        decision = await service.acheck(Request(**facts))
        if not limits.passes(decision, mode, facts["route"] or scope["path"]):
            await _deny(decision, self.settings.options, send)
            return
        places = Places()
        places.keep(decision, service.arelease)
        await places.watch(self.app, scope, receive, send)

    def _facts(self, scope: Scope) -> dict[str, Any]:
        raw = scope.get("raw_path")
        path = raw.decode("latin-1") if raw else quote(scope["path"])
        query = scope.get("query_string", b"").decode("latin-1")
        client = scope.get("client")
        return {
            "method": scope["method"],
            "target": f"{path}?{query}" if query else path,
            "route": None,
            "headers": scope["headers"],
            "peer": client[0] if client else None,
            "identity": None,
            "body": None,
            "context": HTTPConnection(scope),
        }

    def _identity(self, request: HTTPConnection) -> Mapping[str, str | int | float | bool] | None:
        if self.settings.claims is not None:
            return self.settings.claims(request)
        project = self.settings.identify(request)
        return None if project is None else {"org": project[0], "project": project[1]}


def _telling(tally: Tally, options: HttpOptions, send: Send) -> Send:
    def told(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start" and tally:
            message["headers"] = tally.onto(message.get("headers", ()), options)
        return send(message)

    return told


async def _deny(decision: Decision, options: HttpOptions, send: Send) -> None:
    denial = denial_of(decision, options)
    body = denial.body.encode()
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in denial.headers]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": denial.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_json(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = bytes(value).split(b";", 1)[0].strip().lower()
            return kind == b"application/json" or kind.endswith(b"+json")
    return False


class _Body:
    """A body that is looked into first, and goes on whole."""

    def __init__(self, receive: Receive, bytes_max: int) -> None:
        self._rest = receive
        self._bytes_max = bytes_max
        self._read: list[Message] = []

    async def read(self, wait: float) -> bytes | None:
        """All of it, if it is short enough and there in time."""
        try:
            return await asyncio.wait_for(self._all(), wait)
        except asyncio.TimeoutError:
            return None

    async def _all(self) -> bytes | None:
        chunks: list[bytes] = []
        length = 0
        while True:
            message = await self._rest()
            self._read.append(message)
            if message["type"] != "http.request":
                return None
            chunks.append(message.get("body", b""))
            length += len(chunks[-1])
            if length > self._bytes_max:
                return None
            if not message.get("more_body", False):
                return b"".join(chunks)

    async def receive(self) -> Message:
        """What was read comes again, and then the rest."""
        return self._read.pop(0) if self._read else await self._rest()
