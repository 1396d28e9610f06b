"""Limiters that are FastAPI dependencies."""

# No `from __future__ import annotations`: FastAPI reads the annotations of `__call__`, and
# earlier versions cannot resolve text.
import abc
from collections.abc import Awaitable

from fastapi import Request, Response

from .._native import Decision, Limiter, Quota, Store, StoreError
from .._web import Mode, OnOutage, current_mode, limiter_of, quota_of
from ..keys import (
    OverrideScope,
    counter_subject,
    make_org_override_key,
    make_override_key,
    make_path_rate_limit_key,
    make_rate_limit_key,
    parse_org_override_key,
    parse_override_key,
)
from ._endpoint import endpoint_of
from ._settings import RequestLimits, Settings


Asked = Decision | Awaitable[Decision] | None


class RateLimiter(abc.ABC):
    """At most `max_requests` in `expiry` seconds, for each key that `make_key` makes.

    Use it as a dependency: `Depends(MyLimiter(max_requests=100, expiry=60))`. Subclasses say
    what the key is. `algorithm` can be another than Application Kit's fixed window;
    `store` another than that of the application; `on_outage` says what happens when
    the store is away (None: what `setup` was told).

    Values below 1 raise ValueError.
    """

    def __init__(
        self,
        max_requests: int,
        expiry: int = 1,
        policy_name: str = "requests",
        *,
        algorithm: str = "fixed_window",
        store: Store | None = None,
        on_outage: OnOutage | None = None,
    ) -> None:
        self.max_requests = max_requests
        self.expiry = expiry
        self.policy_name = policy_name
        self.quota: Quota = quota_of(max_requests, expiry, algorithm)
        self.store = store
        self.on_outage: OnOutage | None = on_outage
        # The limiter for the application that asked last; mostly there is only one.
        self._made: tuple[Settings, tuple[Limiter, bool]] | None = None

    @abc.abstractmethod
    def make_key(self, request: Request) -> str | None:
        """The key to count under; None if this request is not limited."""

    def make_override_key(self, request: Request) -> str | None:
        """The name of the project's override (see `ratekeeper.keys`); None if none applies."""
        return None

    def make_org_override_key(self, request: Request) -> str | None:
        """The name of the organisation's override; None if none applies."""
        return None

    async def __call__(self, request: Request, response: Response) -> None:
        limits = RequestLimits.of(request.scope)
        mode = current_mode(limits.settings.mode)
        if mode != "off" and (asked := self._ask(request, limits, mode)) is not None:
            decision = asked if isinstance(asked, Decision) else await asked
            limits.note(decision, mode, response, noted_endpoint(limits, request))

    def _ask(self, request: Request, limits: RequestLimits, mode: Mode) -> Asked:
        """The check of a request; None if it is not limited, or needs no more noting."""
        key = self.make_key(request)
        return None if key is None else self._check(request, limits, counter_subject(key), mode)

    async def _check(self, request: Request, limits: RequestLimits, key: str, mode: Mode) -> Decision:
        limiter, _ = self._limiter(limits)
        scope = await self._override_scope(request, limiter.store)
        if scope is None:
            return await limiter.acheck(key, mode=mode)
        endpoint, organisation, project = scope
        return await limiter.acheck(
            key, organisation=organisation, project=project, endpoint=endpoint, mode=mode
        )

    def _limiter(self, limits: RequestLimits) -> tuple[Limiter, bool]:
        """The limiter, and whether it answers without waiting."""
        settings, made = limits.settings, self._made
        if made is None or made[0] is not settings:
            on_outage = self.on_outage or settings.on_outage
            limiter = limiter_of(limits.store(self.store), self.policy_name, self.quota, on_outage)
            made = self._made = (settings, (limiter, limiter.store.kind == "memory"))
        return made[1]

    async def _override_scope(self, request: Request, store: Store) -> OverrideScope | None:
        own, around = self.make_override_key(request), self.make_org_override_key(request)
        if own is None:
            return None if around is None else parse_org_override_key(around)
        scope = parse_override_key(own)
        if around is None:
            return await _without_organisation(scope, store)
        if parse_org_override_key(around) != (scope.endpoint, scope.organisation, None):
            raise ValueError(
                f"make_org_override_key: got {around!r}; expected the endpoint and organisation of {own!r}"
            )
        return scope


async def _without_organisation(scope: OverrideScope, store: Store) -> OverrideScope | None:
    # The engine follows the whole chain. Where a limiter leaves the organisation out, its
    # override must be absent, or stand behind one of the project.
    assert scope.project is not None
    try:
        if await store.aget_override(scope.endpoint, scope.organisation) is None:
            return scope
        own = await store.aget_override(scope.endpoint, scope.organisation, scope.project)
    except StoreError:
        # The check will meet the same outage, and knows what it means.
        return scope
    return None if own is None else scope


def noted_endpoint(limits: RequestLimits, request: Request) -> str:
    """The endpoint of a request, found once."""
    if limits.endpoint is None:
        limits.endpoint = endpoint_of(request.scope)
    return limits.endpoint


def noted_project(limits: RequestLimits, request: Request) -> tuple[int | str, int | str] | None:
    """Who is calling."""
    # Somebody who is not known yet may be known to the next limiter.
    if limits.project is None:
        limits.project = limits.settings.identify(request)
    return limits.project


class ProjectRateLimiter(RateLimiter):
    """Limits each project on each endpoint, with overrides of the project and of its organisation.

    Counters and overrides are those of Application Kit. Requests of nobody that
    `setup(identify=...)` knows are not limited: authenticate first.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Keys that a subclass makes have to be read; those that are made here need not be.
        names = ("make_key", "make_override_key", "make_org_override_key")
        cls._own_keys = any(getattr(cls, name) is not getattr(ProjectRateLimiter, name) for name in names)

    _own_keys = False

    def _ask(self, request: Request, limits: RequestLimits, mode: Mode) -> Asked:
        if self._own_keys:
            return super()._ask(request, limits, mode)
        project = noted_project(limits, request)
        if project is None:
            return None
        endpoint = noted_endpoint(limits, request)
        limiter, in_memory = self._limiter(limits)
        if in_memory and limits.sends_headers:
            # Nothing to wait for, so nothing that can be awaited needs to be made; mostly nothing to do either.
            return limiter.admit_project(limits.tally, endpoint, project[0], project[1], mode)
        return limiter.acheck_project(endpoint, *project, mode=mode)

    def make_key(self, request: Request) -> str | None:
        limits = RequestLimits.of(request.scope)
        project = noted_project(limits, request)
        return None if project is None else make_rate_limit_key(noted_endpoint(limits, request), *project)

    def make_override_key(self, request: Request) -> str | None:
        limits = RequestLimits.of(request.scope)
        project = noted_project(limits, request)
        return None if project is None else make_override_key(noted_endpoint(limits, request), *project)

    def make_org_override_key(self, request: Request) -> str | None:
        limits = RequestLimits.of(request.scope)
        project = noted_project(limits, request)
        return None if project is None else make_org_override_key(noted_endpoint(limits, request), project[0])


class PathRateLimiter(RateLimiter):
    """Limits each path as it was asked for, whoever asks: `/users/1` and `/users/2` are two.

    For endpoints where nobody is known. Overrides do not apply.
    """

    def make_key(self, request: Request) -> str | None:
        return make_path_rate_limit_key(f"path:{request.scope['path']}")
