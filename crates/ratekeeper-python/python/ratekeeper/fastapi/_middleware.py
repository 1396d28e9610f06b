"""The middleware: rules of policies at the door, header fields on every response.

Plain ASGI: responses stream through, and nothing runs in another task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection
from starlette.requests import Request as Connection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._late import taken
from .._modes import Mode, current_mode, of_request, said_mode
from .._native import Decision, Denial, HttpOptions, Request, ServiceLimiter, Tally
from .._tracing import entry_span, tag_over_limit
from .._web import denial_of, pair_of
from ._body import Body
from ._endpoint import find_endpoint, path_within
from ._peer import peer_address
from ._places import Places, are_expected
from ._request import SCOPE_KEY, TRY_AGAIN_LATER, RequestLimits
from ._settings import Settings
from ._start import check_routes
from ._websocket import POLICY_VIOLATION, answer_of, telling_socket

# What a trace is told of a request that no route takes: its path is anything, and anybody's name.
_NO_ROUTE = "no route"


class RateLimitMiddleware:
    """Puts the header fields of all limits that a request met on its response, whatever response that is.

    With `settings.service` it also applies the rules of that service's policy, before
    anything is routed.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.service: ServiceLimiter | None = None
        self._is_checked = False
        if settings.service is not None:
            if settings.policies is None:
                raise ValueError("service: got one without policies; expected policies=PolicyLimiter(...) too")
            self.service = settings.policies.service(settings.service)

    # Neither this nor `told` below is a coroutine: each would cost a request as much as its check.
    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        kind = scope["type"]
        if kind not in ("http", "websocket"):
            return self._started(scope, receive, send) if kind == "lifespan" else self.app(scope, receive, send)
        if not self._is_checked:
            # Servers may leave the start out, and so do test clients.
            self._check(scope)
        outer: RequestLimits | None = scope.get(SCOPE_KEY)
        if outer is None:
            limits = RequestLimits(self.settings, Tally(), entry_span())
            telling = _telling if kind == "http" else telling_socket
            send = telling(limits, self.settings.options, scope, send)
        else:
            limits = RequestLimits(self.settings, outer.tally, outer.span)
            limits.outer = outer
        scope[SCOPE_KEY] = limits
        if self.settings.mode is not None or outer is not None:
            of_request.set(self.settings.mode)
        if self.service is not None:
            said = said_mode(self.settings.mode)
            if (said or current_mode()) != "off":
                return self._guarded(self.service, limits, said, scope, receive, send)
        if are_expected():
            return Places().watch(self.app, scope, receive, send)
        return self.app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        check_routes(getattr(scope.get("app"), "routes", ()), self.settings)
        self._is_checked = True

    async def _started(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses to start with limits that cannot be what was meant."""
        try:
            self._check(scope)
        except (TypeError, ValueError) as error:
            await receive()
            # Servers take an exception alone for an application that knows no start.
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await self.app(scope, receive, send)

    # Without a mode, the policies know theirs.
    async def _guarded(
        self,
        service: ServiceLimiter,
        limits: RequestLimits,
        mode: Mode | None,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        facts = _facts(scope)
        needs = service.needs_of(_request(facts))
        if needs.route:
            facts["route"] = _route(scope)
        if needs.identity:
            try:
                facts["identity"] = self._identity(facts["context"])
            except HTTPException as error:
                return await _answer(error, scope, receive, send)
        if needs.body:
            if scope["type"] != "http":
                # What a WebSocket receives is no body.
                facts["body"] = b""
            # Mostly whatever it says it is: `request.json()` does not look at the content type either.
            elif Request.looks_into(_content_type(scope)):
                body = Body(receive, self.settings.body_bytes_max)
                facts["body"] = await body.read(self.settings.body_wait)
                receive = body.receive
            facts["unreadable_body"] = facts["body"] is None
        decision = await taken(service.acheck(Request(**facts), mode=mode), service.arelease)
        if not limits.passes(decision, mode):
            if scope["type"] == "websocket":
                limits.deny(denial_of(decision, self.settings.options))
                return await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
            return await _deny(decision, self.settings.options, send)
        if decision.over_limit:
            tag_over_limit(facts["route"] or _route(scope) or _NO_ROUTE, limits.span)
        places = Places()
        places.keep(decision, service.arelease)
        await places.watch(self.app, scope, receive, send)

    def _identity(self, request: Connection) -> Mapping[str, str | int | float | bool] | None:
        if self.settings.claims is not None:
            return self.settings.claims(request)
        found = self.settings.identify(request)
        if found is None:
            return None
        organisation, project = pair_of("identify", found)
        return {"org": organisation, "project": project}


def _facts(scope: Scope) -> dict[str, Any]:
    # What Starlette routes by. It is decoded: of what stands in it, only these mean something else in a target.
    path = path_within(scope).replace("%", "%25").replace("?", "%3F")
    query = scope.get("query_string", b"").decode("latin-1")
    client = scope.get("client")
    return {
        # Of a WebSocket, that of its opening.
        "method": scope.get("method", "GET"),
        "target": f"{path}?{query}" if query else path,
        "route": None,
        "headers": scope["headers"],
        "peer": client[0] if client else None,
        "identity": None,
        "body": None,
        "context": Connection(scope) if scope["type"] == "http" else HTTPConnection(scope),
    }


def _content_type(scope: Scope) -> bytes | None:
    kinds = (bytes(value) for name, value in scope["headers"] if name == b"content-type")
    return next(kinds, None)


def _request(facts: dict[str, Any]) -> Request:
    try:
        return Request(**facts)
    except (TypeError, ValueError):
        # Of what a server says only the peer may be anything; mostly it is an address.
        if facts["peer"] is None:
            raise
        facts["peer"] = peer_address(facts["peer"])
        return Request(**facts)


def _route(scope: Scope) -> str | None:
    # The application stands in the scope before its middleware runs.
    return find_endpoint(getattr(scope.get("app"), "routes", ()), scope)


def _telling(limits: RequestLimits, options: HttpOptions, scope: Scope, send: Send) -> Send:
    tally = limits.tally

    def told(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            if limits.denial is not None:
                _tell_denial(limits.denial, message)
            if tally:
                message["headers"] = tally.onto(message.get("headers", ()), options)
        return send(message)

    return told


def _tell_denial(denial: Denial, message: Message) -> None:
    """Adds what a handler of exceptions, which may be anybody's, has left out of the answer to a denial."""
    if message["status"] != denial.status:
        return
    headers = list(message.get("headers", ()))
    present = {bytes(name).lower() for name, _ in headers}
    for name, value in denial.headers:
        # Whoever made the response has set its content type.
        if name != "content-type" and name.encode("latin-1") not in present:
            headers.append((name.encode("latin-1"), value.encode("latin-1")))
    message["headers"] = headers


async def _answer(error: HTTPException, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers as the application does: the door is outside of its handlers."""
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": str(error.detail)})

    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    handlers = getattr(scope.get("app"), "exception_handlers", {})
    own = {kind: handler for kind, handler in handlers.items() if kind not in (500, Exception)}
    await ExceptionMiddleware(fail, handlers=own)(scope, receive, send)


async def _deny(decision: Decision, options: HttpOptions, send: Send) -> None:
    denial = denial_of(decision, options)
    body, headers = answer_of(denial)
    await send({"type": "http.response.start", "status": denial.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
