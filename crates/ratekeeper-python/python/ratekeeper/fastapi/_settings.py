"""What limiters have to know, and what one request has met of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, NamedTuple

from fastapi import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response

from .._native import Decision, HttpOptions, Limiter, PolicyLimiter, Store, Tally
from .._result import RateLimitResult
from .._tracing import entry_span, tag_over_limit
from .._web import (
    DETAIL,
    LIMITERS_MAX,
    MODES,
    ON_OUTAGE,
    LimiterOf,
    Mode,
    ModeSource,
    OnOutage,
    check_callable,
    check_kind,
    check_word,
    current_mode,
    denial_of,
    detail_of,
    limiters,
)

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
    limiter_of: LimiterOf = dataclasses.field(default_factory=limiters, init=False, repr=False, compare=False)
    # The limiter of each `RateLimiter`, and whether it answers without waiting.
    made: dict[object, tuple[Limiter, bool]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        # Tells what is wrong now, not with the first request.
        check_kind("store", self.store, Store, None)
        check_kind("policies", self.policies, PolicyLimiter, None)
        check_kind("service", self.service, str, None)
        check_callable("identify", self.identify)
        if self.claims is not None:
            check_callable("claims", self.claims)
        if not callable(self.mode):
            check_word("mode", self.mode, (*MODES, None))
        check_word("on_outage", self.on_outage, ON_OUTAGE)
        check_kind("options", self.options, HttpOptions)
        check_kind("body_bytes_max", self.body_bytes_max, int)
        check_kind("body_wait", self.body_wait, int, float)
        for name, value in (("body_bytes_max", self.body_bytes_max), ("body_wait", self.body_wait)):
            if value < 0:
                raise ValueError(f"{name}: got {value}; expected 0 or more")

    def keep(self, limiter: object, made: tuple[Limiter, bool]) -> None:
        """Remembers what was made for a limiter."""
        if len(self.made) >= LIMITERS_MAX:
            self.made.clear()
        self.made[limiter] = made


_NONE_SET_UP = Settings()
# WebSockets have no responses that could tell of limits.
_NOT_LIMITED = Settings(mode="off")


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
            settings = _NONE_SET_UP if scope["type"] == "http" else _NOT_LIMITED
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
