"""What one request has met of limits, and the exception of one that was denied."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

from fastapi import HTTPException, WebSocketException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from .._fields import HeaderFields
from .._modes import Mode, current_mode
from .._native import Decision, Denial, HttpOptions, Store, Tally
from .._result import RateLimitResult
from .._tracing import entry_span, tag_over_limit
from .._web import DETAIL, Pair, denial_of, detail_of, pair_of, warn_of_nobody
from ._endpoint import endpoint_of
from ._settings import Settings

Scope = MutableMapping[str, Any]

SCOPE_KEY = "ratekeeper"

_NONE_SET_UP = Settings()
# What a WebSocket is closed with: "try again later".
TRY_AGAIN_LATER = 1013


class RateLimitExceeded(HTTPException):
    """A limit said no: 429, or 503 if it could not be checked and is set to deny then."""

    def __init__(
        self,
        decision: Decision | RateLimitResult,
        headers: Iterable[tuple[str, str]] = (),
        options: HttpOptions = DETAIL,
    ) -> None:
        self.decision, self.result = RateLimitResult.both(decision)
        self.denial = denial_of(self.decision, options)
        # The content type is that of the body, which the handler of the exception makes.
        own = [pair for pair in self.denial.headers if pair[0] != "content-type"]
        super().__init__(self.denial.status, detail_of(self.decision), HeaderFields([*own, *headers]))

    @property
    def status(self) -> int:
        """The same as `status_code`, by the name that it has in Django."""
        return self.status_code

    def __reduce__(self) -> tuple[Any, ...]:
        return _exceeded_of, (type(self), self.decision, self.denial, self.detail, HeaderFields(self.headers or {}), self.result)


class WebSocketRateLimitExceeded(WebSocketException):
    """A limit said no to a WebSocket: it is not opened, or closed with 1013, "try again later"."""

    def __init__(self, decision: Decision) -> None:
        self.decision, self.result = RateLimitResult.both(decision)
        self.denial = denial_of(self.decision, DETAIL)
        super().__init__(TRY_AGAIN_LATER, detail_of(self.decision))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.decision,)


def _exceeded_of(
    kind: type[RateLimitExceeded], decision: Decision, denial: Denial, detail: str, headers: dict[str, str],
    result: RateLimitResult,
) -> RateLimitExceeded:
    """One that was pickled: what it was made of may have been a subclass's."""
    error = kind.__new__(kind, decision)
    HTTPException.__init__(error, denial.status, detail, headers)
    error.decision, error.denial, error.result = decision, denial, result
    return error


async def problem(request: Request, error: Exception) -> Response:
    """Answers with a problem document."""
    assert isinstance(error, RateLimitExceeded)
    headers = HeaderFields([*error.denial.headers, *(error.headers or {}).items()])
    return Response(error.denial.body, error.denial.status, headers)


class RequestLimits:
    """The limits one request has met: a single `Tally`, however many limiters there are."""

    # Found once for a request, by the first limiter that needs them.
    endpoint: str | None = None
    project: Pair | None = None
    # Whether a middleware puts them on whatever response there will be.
    sends_headers = True
    # Those of the application around the one that answers, if both were set up.
    outer: RequestLimits | None = None
    denial: Denial | None = None

    def __init__(self, settings: Settings, tally: Tally, span: Any) -> None:
        self.settings = settings
        self.tally = tally
        self.span = span

    @staticmethod
    def of(scope: Scope, settings: Settings = _NONE_SET_UP) -> RequestLimits:
        """Those of a request; new ones, with these settings, if no middleware has made them."""
        limits: RequestLimits | None = scope.get(SCOPE_KEY)
        if limits is None:
            limits = scope[SCOPE_KEY] = RequestLimits(settings, Tally(), entry_span())
            limits.sends_headers = False
        return limits

    def mode(self) -> Mode:
        """The mode in force now."""
        return current_mode(self.settings.mode)

    def store(self, own: Store | None) -> Store:
        """The store of a limiter: its own, or else the application's."""
        store = own or self.settings.store
        if store is None:
            raise RuntimeError(
                "a rate limiter has no store: call ratekeeper.fastapi.setup(app, store=...), or give it store="
            )
        return store

    def passes(self, decision: Decision, mode: Mode | None) -> bool:
        """Whether the request goes on, which in monitor mode it does."""
        self.tally.add(decision)
        return decision.allowed or mode == "monitor"

    def note(
        self,
        decision: Decision,
        mode: Mode | None,
        response: Response | None,
        request: HTTPConnection,
        *,
        blocks: bool = True,
    ) -> None:
        """Reports a decision; raises `RateLimitExceeded` if it is a denial.

        Of a WebSocket, that is `WebSocketRateLimitExceeded`. If it does not block, `request.state.rate_limited` says it.
        """
        passes = self.passes(decision, mode)
        if not blocks:
            request.state.rate_limited = getattr(request.state, "rate_limited", False) or not decision.allowed
            request.state.rate_limit_decision = decision
        elif not passes:
            if request.scope["type"] == "websocket":
                self.deny(denial_of(decision, self.settings.options))
                raise WebSocketRateLimitExceeded(decision)
            raise self._exceeded(decision, request.scope)
        if decision.over_limit:
            tag_over_limit(noted_endpoint(self, request), self.span)
        if response is not None and not self.sends_headers:
            for name, value in self.tally.headers(self.settings.options):
                response.headers[name] = value

    def deny(self, denial: Denial) -> None:
        """Remembers what is answered, for the middlewares around."""
        limits: RequestLimits | None = self
        while limits is not None:
            limits.denial = denial
            limits = limits.outer

    def _exceeded(self, decision: Decision, scope: Scope) -> RateLimitExceeded:
        options = self.settings.options
        error = RateLimitExceeded(decision, self.tally.headers(options), options)
        self.deny(error.denial)
        if options.content_type != DETAIL.content_type:
            # Those of the application that answers, which may be one that is mounted in the one that was set up.
            handlers = scope.get("starlette.exception_handlers")
            if handlers:
                handlers[0].setdefault(RateLimitExceeded, problem)
        return error


def noted_endpoint(limits: RequestLimits, request: HTTPConnection) -> str:
    """The endpoint of a request, found once."""
    if limits.endpoint is None:
        limits.endpoint = endpoint_of(request.scope)
    return limits.endpoint


def noted_project(limits: RequestLimits, request: Request) -> Pair | None:
    """Who is calling."""
    # Somebody who is not known yet may be known to the next limiter.
    found = limits.project
    if found is None:
        found = limits.settings.identify(request)
        if found is not None:
            if not isinstance(found, tuple) or len(found) != 2:
                found = pair_of("identify", found)
            limits.project = found
    return found


def nobody(limits: RequestLimits, request: Request, store: Store) -> None:
    """A limit by project, which has a store, met a request of which it is not known whose it is."""
    warn_of_nobody(noted_endpoint(limits, request), "setup(identify=...)")
