"""Limiters that are FastAPI dependencies."""

# No `from __future__ import annotations`: FastAPI reads the annotations of `__call__`, and
# earlier versions cannot resolve text.
import abc
import dataclasses
from collections.abc import Awaitable
from typing import ClassVar

from fastapi import Request, Response
from starlette.requests import HTTPConnection

from .._modes import Mode, current_mode
from .._native import Decision, Limiter, Quota, Rule, Store, StoreError
from .._web import OnOutage, check_kind, check_plain_callable, check_suffix, quota_of
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
from ._endpoint import path_within
from ._places import Places, expect
from ._request import RequestLimits, nobody, noted_endpoint, noted_project

Asked = Decision | Awaitable[Decision] | None

# The fields of a limiter that its limit is made of.
_TERMS = frozenset({"max_requests", "expiry", "policy_name", "algorithm", "store", "on_outage", "key_suffix"})
# What subclasses may make of a request, before there is anything to wait for.
_MAKERS = ("make_key", "make_override_key", "make_org_override_key")


# Each is itself: FastAPI tells dependencies apart by what they are equal to.
@dataclasses.dataclass(eq=False)
class RateLimiter(abc.ABC):
    """At most `max_requests` in `expiry` seconds, for each key that `make_key` makes.

    Use it as a dependency: `Depends(MyLimiter(max_requests=100, expiry=60))`. Subclasses say
    what the key is. `algorithm` can be another than Application Kit's fixed window;
    `store` another than that of the application; `on_outage` says what happens when
    the store is away (None: what `setup` was told).

    Values below 1 raise ValueError, also when a field is set later; the limit follows.
    Subclasses may be dataclasses; one with a `__post_init__` of its own calls this one.
    """

    max_requests: int
    expiry: int = 1
    policy_name: str = "requests"
    algorithm: str = dataclasses.field(default="fixed_window", kw_only=True)
    store: Store | None = dataclasses.field(default=None, kw_only=True, repr=False)
    on_outage: OnOutage | None = dataclasses.field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Also if it becomes a dataclass, which would be equal to others, and had no hash.
        for name in ("__eq__", "__hash__"):
            if name not in vars(cls):
                setattr(cls, name, getattr(object, name))

    def __post_init__(self) -> None:
        self._take_terms()

    def __setattr__(self, name: str, value: object) -> None:
        before = vars(self).get(name)
        object.__setattr__(self, name, value)
        # Until all of them are there, `__post_init__` is still to come.
        if name in _TERMS and "_terms" in vars(self) and value != before:
            try:
                self._take_terms()
            except BaseException:
                object.__setattr__(self, name, before)
                raise

    def _take_terms(self) -> None:
        """Makes of the fields what requests need. Tells what is wrong with them now, not with the first request."""
        quota = quota_of(self.max_requests, self.expiry, self.algorithm)
        check_kind("store", self.store, Store, None)
        for name in _MAKERS:
            check_plain_callable(f"{type(self).__name__}.{name}", getattr(self, name))
        Rule(self.policy_name, quota, on_outage=self.on_outage or "allow")
        self.quota = quota

    @property
    def quota(self) -> Quota:
        """The limit as the engine has it. Another can be set, until a field is."""
        return self._quota

    @quota.setter
    def quota(self, quota: Quota) -> None:
        self._quota = check_kind("quota", quota, Quota)
        self._holds = quota.algorithm == "concurrency"
        self._is_fixed = quota.algorithm == "fixed_window"
        self._text = str(quota)
        # What was made of other terms is not found by these.
        self._terms = object()
        if self._holds:
            expect()

    @abc.abstractmethod
    def make_key(self, request: Request) -> str | None:
        """The key to count under; None if this request is not limited."""

    def make_override_key(self, request: Request) -> str | None:
        """The name of the project's override (see `ratekeeper.keys`); None if none applies."""
        return None

    def make_org_override_key(self, request: Request) -> str | None:
        """The name of the organisation's override; None if none applies."""
        return None

    # Not `Request`: a limiter of an application with WebSockets is called for these as well.
    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        limits = RequestLimits.of(request.scope)
        mode = current_mode(limits.settings.mode)
        asked = self._ask(request, limits, mode) if mode != "off" else None  # type: ignore[arg-type]
        if asked is not None:
            decision = asked if isinstance(asked, Decision) else await asked
            limits.note(decision, mode, response, request)

    def _ask(self, request: Request, limits: RequestLimits, mode: Mode) -> Asked:
        """The check of a request; None if it is not limited, or needs no more noting."""
        key = self.make_key(request)
        if key is None:
            # That nobody has set it up is told whoever asks.
            limits.store(self.store)
            return None
        return self._check(request, limits, key, mode)

    async def _check(self, request: Request, limits: RequestLimits, key: str, mode: Mode) -> Decision:
        limiter, _ = self._limiter(limits)
        scope = await self._override_scope(request, limiter.store)
        endpoint, organisation, project = scope or _NOBODY
        # Only fixed windows are Application Kit's.
        key = counter_subject(key, self._text, scope if self._is_fixed else None)
        places = Places.of(request.scope) if self._holds else None
        asked = limiter.acheck(key, organisation=organisation, project=project, endpoint=endpoint, mode=mode)
        # Of one quota, all that was charged is its place.
        return await (asked if places is None else places.held(asked, limiter.arefund))

    def _limiter(self, limits: RequestLimits) -> tuple[Limiter, bool]:
        """The limiter, and whether it answers without waiting."""
        # With the application's settings and not here: FastAPI keeps dependencies longer than applications.
        return limits.settings.made.get(self._terms) or self._make(limits)

    def _make(self, limits: RequestLimits) -> tuple[Limiter, bool]:
        on_outage = self.on_outage or limits.settings.on_outage
        limiter = limits.settings.limiter_of(limits.store(self.store), self.policy_name, self._quota, on_outage)
        made = (limiter, limiter.store.kind == "memory" and not self._holds)
        limits.settings.keep(self._terms, made)
        return made

    async def _override_scope(self, request: Request, store: Store) -> OverrideScope | None:
        own, around = self.make_override_key(request), self.make_org_override_key(request)
        of_organisation = None if around is None else parse_org_override_key(around)
        if own is None:
            return of_organisation
        of_project = parse_override_key(own)
        if of_organisation == (of_project.endpoint, of_project.organisation, None):
            return of_project
        # The engine follows the chain of one endpoint and one organisation. Where a limiter leaves
        # the organisation out, or means another, the project's override has to be looked for first.
        try:
            found = await store.aget_override(of_project.endpoint, of_project.organisation, of_project.project)
        except StoreError:
            # The check will meet the same outage, and knows what it means.
            return of_project
        return of_organisation if found is None else of_project


# Whose overrides apply if none do.
_NOBODY = (None, None, None)


@dataclasses.dataclass(eq=False)
class ProjectRateLimiter(RateLimiter):
    """Limits each project on each endpoint, with overrides of the project and of its organisation.

    Counters and overrides are those of Application Kit: one for a project on an endpoint. A second limit there
    needs a `key_suffix`, which keeps a counter of its own; without one, `setup` refuses it when the application starts.
    Requests of nobody that `setup(identify=...)` knows are not limited: authenticate first.
    """

    key_suffix: str = dataclasses.field(default="", kw_only=True)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Keys that a subclass makes have to be read; those that are made here need not be.
        cls._own_keys = any(getattr(cls, name) is not getattr(ProjectRateLimiter, name) for name in _MAKERS)

    _own_keys: ClassVar[bool] = False

    def _take_terms(self) -> None:
        check_suffix(self.key_suffix)
        super()._take_terms()

    @property
    def shares_counter(self) -> bool:
        """Whether a project's counter is the one that Application Kit has for its endpoint, with this suffix."""
        return self._is_fixed and not self._own_keys

    def _endpoint(self, limits: RequestLimits, request: Request) -> str:
        endpoint = noted_endpoint(limits, request)
        return f"{endpoint}{self.key_suffix}" if self.key_suffix else endpoint

    def _ask(self, request: Request, limits: RequestLimits, mode: Mode) -> Asked:
        if self._own_keys:
            return super()._ask(request, limits, mode)
        project = noted_project(limits, request)
        if project is None:
            nobody(limits, request, self.store)
            return None
        if not self._is_fixed:
            return super()._ask(request, limits, mode)
        endpoint = self._endpoint(limits, request)
        limiter, at_once = self._limiter(limits)
        if at_once and limits.sends_headers:
            # Nothing to wait for, so nothing that can be awaited needs to be made; mostly nothing to do either.
            return limiter.admit_project(limits.tally, endpoint, project[0], project[1], mode)
        places = Places.of(request.scope) if self._holds else None
        asked = limiter.acheck_project(endpoint, *project, mode=mode)
        return asked if places is None else places.held(asked, limiter.arefund)

    def make_key(self, request: Request) -> str | None:
        limits = RequestLimits.of(request.scope)
        project = noted_project(limits, request)
        return None if project is None else make_rate_limit_key(self._endpoint(limits, request), *project)

    def make_override_key(self, request: Request) -> str | None:
        limits = RequestLimits.of(request.scope)
        project = noted_project(limits, request)
        return None if project is None else make_override_key(self._endpoint(limits, request), *project)

    def make_org_override_key(self, request: Request) -> str | None:
        limits = RequestLimits.of(request.scope)
        project = noted_project(limits, request)
        return None if project is None else make_org_override_key(self._endpoint(limits, request), project[0])


class PathRateLimiter(RateLimiter):
    """Limits each path as it was asked for, whoever asks: `/users/1` and `/users/2` are two.

    For endpoints where nobody is known. Overrides do not apply. The root path of the application is no part of it:
    whether a proxy takes it off or not, it is one path.
    """

    def make_key(self, request: Request) -> str | None:
        return make_path_rate_limit_key(f"path:{path_within(request.scope)}")
