"""What limiters have to know, and what one request has met of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

from fastapi import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from .._native import Decision, HttpOptions, PolicyLimiter, Store, Tally
from .._result import RateLimitResult
from .._tracing import entry_span, tag_over_limit
from .._web import DETAIL, Mode, ModeSource, OnOutage, current_mode, denial_of, detail_of

SCOPE_KEY = "ratekeeper"


class Project(NamedTuple):
    """Who is calling, as Application Kit knows it."""

    organization_id: int | str
    project_id: int | str


def project_of_state(request: HTTPConnection) -> Project | None:
    """What an authentication has put into `request.state.organization_id` and `.project_id`."""
    state = request.scope.get("state") or {}
    organisation, project = state.get("organization_id"), state.get("project_id")
    return None if organisation is None or project is None else Project(organisation, project)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `setup` was told."""

    store: Store | None = None
    policies: PolicyLimiter | None = None
    service: str | None = None
    identify: Callable[[HTTPConnection], tuple[int | str, int | str] | None] = project_of_state
    claims: Callable[[HTTPConnection], Mapping[str, str | int | float | bool] | None] | None = None
    mode: ModeSource = None
    on_outage: OnOutage = "allow"
    options: HttpOptions = DETAIL
    body_bytes_max: int = 256 * 1024
    body_wait: float = 5


_NONE_SET_UP = Settings()


class RateLimitExceeded(HTTPException):
    """A limit said no: 429, or 503 if it could not be checked and is set to deny then."""

    def __init__(self, decision: Decision, headers: Iterable[tuple[str, str]], options: HttpOptions) -> None:
        self.decision = decision
        self.result = RateLimitResult.of(decision)
        self.denial = denial_of(decision, options)
        # The content type is that of the body, which the handler of the exception makes.
        own = [pair for pair in self.denial.headers if pair[0] != "content-type"]
        super().__init__(self.denial.status, detail_of(decision), dict([*own, *headers]))


class RequestLimits:
    """The limits one request has met: a single `Tally`, however many limiters there are."""

    # Found once for a request, by the first limiter that needs them.
    endpoint: str | None = None
    project: tuple[int | str, int | str] | None = None
    # Whether a middleware puts them on whatever response there will be.
    sends_headers = True

    def __init__(self, settings: Settings, tally: Tally, span: Any) -> None:
        self.settings = settings
        self.tally = tally
        self.span = span

    @staticmethod
    def of(scope: MutableMapping[str, Any]) -> RequestLimits:
        """Those of a request; new ones if no middleware has made them."""
        limits: RequestLimits | None = scope.get(SCOPE_KEY)
        if limits is None:
            limits = scope[SCOPE_KEY] = RequestLimits(_NONE_SET_UP, Tally(), entry_span())
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

    def passes(self, decision: Decision, mode: Mode, endpoint: str) -> bool:
        """Whether the request goes on, which in monitor mode it does. The trace is told if only for that."""
        self.tally.add(decision)
        passes = decision.allowed or mode == "monitor"
        if passes and decision.over_limit:
            tag_over_limit(endpoint, self.span)
        return passes

    def note(self, decision: Decision, mode: Mode, response: Response | None, endpoint: str) -> None:
        """Tells a decision to whoever is to know; raises `RateLimitExceeded` if it is a denial."""
        options = self.settings.options
        if not self.passes(decision, mode, endpoint):
            raise RateLimitExceeded(decision, self.tally.headers(options), options)
        if response is not None and not self.sends_headers:
            for name, value in self.tally.headers(options):
                response.headers[name] = value
