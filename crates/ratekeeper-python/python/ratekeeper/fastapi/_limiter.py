"""Limiters that are FastAPI dependencies: what they have in common."""

# No `from __future__ import annotations`: FastAPI reads the annotations of `__call__`, and
# earlier versions cannot resolve text.
import abc
import dataclasses
import inspect
from collections.abc import Awaitable, Collection
from typing import Any

from fastapi import Request, Response
from starlette.requests import HTTPConnection

from .._modes import Mode, current_mode
from .._native import Decision, Limiter, Quota, Rule, Store, StoreError
from .._rates import Quotas, quotas_said
from .._web import OnOutage, check_kind, check_plain_callable
from ..keys import OverrideScope, counter_subject, parse_org_override_key, parse_override_key
from ._options import DYNAMIC, Cost, Exempt, Rate, check_options, cost_said, said_of
from ._places import Places, expect
from ._request import RequestLimits

Asked = Decision | Awaitable[Decision | None] | None

# The fields of a limiter that its limit is made of.
_TERMS = frozenset({
    "max_requests", "expiry", "policy_name", "algorithm", "store", "on_outage", "key_suffix", "methods", "exempt",
    "cost", "block",
})
# What subclasses may make of a request, before there is anything to wait for.
MAKERS = ("make_key", "make_override_key", "make_org_override_key")


# Each is itself: FastAPI tells dependencies apart by what they are equal to.
@dataclasses.dataclass(eq=False)
class RateLimiter(abc.ABC):
    """At most `max_requests` in `expiry` seconds, for each key that `make_key` makes.

    Use it as a dependency: `Depends(MyLimiter(max_requests=100, expiry=60))`. Subclasses say
    what the key is, plainly or by an `async def`. `max_requests` may be a text with one rate or several, `"5/minute;100/hour"`,
    or a function of the request that says a number or a text, or None if the request is not limited.

    `algorithm` can be another than Application Kit's fixed window; `store` another than that of the application;
    `on_outage` says what happens when the store is away (None: what `setup` was told). `methods`: those that are limited.
    `exempt`: a function; requests for which it says True are not limited. `cost`: what a request costs, or a function that
    says it. `block=False` denies nothing: `request.state.rate_limited` says what would have been.

    Values below 1 raise ValueError, also when a field is set later; the limit follows.
    Subclasses may be dataclasses; one with a `__post_init__` of its own calls this one.
    """

    max_requests: Rate
    expiry: int = 1
    policy_name: str = "requests"
    algorithm: str = dataclasses.field(default="fixed_window", kw_only=True)
    store: Store | None = dataclasses.field(default=None, kw_only=True, repr=False)
    on_outage: OnOutage | None = dataclasses.field(default=None, kw_only=True)
    methods: Collection[str] | None = dataclasses.field(default=None, kw_only=True)
    exempt: Exempt | None = dataclasses.field(default=None, kw_only=True, repr=False)
    cost: Cost = dataclasses.field(default=1, kw_only=True)
    block: bool = dataclasses.field(default=True, kw_only=True)

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
        said = None if callable(self.max_requests) else quotas_said(self.max_requests, self.expiry, self.algorithm)
        check_kind("store", self.store, Store, None)
        for name in MAKERS[1:]:
            check_plain_callable(f"{type(self).__name__}.{name}", getattr(self, name))
        self._methods = check_options(self.methods, self.exempt, self.cost, self.block)
        self._is_plain = self._methods is None and self.exempt is None and self.cost == 1 and said is not None
        self._set_quotas(quotas_said(1, 1, self.algorithm) if said is None else said, said is None)

    @property
    def quota(self) -> Quota:
        """The limit as the engine has it; of several rates the first. Another can be set, until a field is."""
        if self._is_dynamic:
            raise AttributeError("quota: a function says the limit with every request")
        return self._quotas if isinstance(self._quotas, Quota) else self._quotas[0][1]

    @quota.setter
    def quota(self, quota: Quota) -> None:
        self._set_quotas(check_kind("quota", quota, Quota), False)

    @property
    def quotas(self) -> list[tuple[str, Quota]]:
        """Every quota with its full name; none if a function says the limit with every request."""
        if self._is_dynamic:
            return []
        if isinstance(self._quotas, Quota):
            return [(self.policy_name, self._quotas)]
        return [(f"{self.policy_name}.{name}", quota) for name, quota in self._quotas]

    def _set_quotas(self, quotas: Quota | Quotas, is_dynamic: bool) -> None:
        several = () if isinstance(quotas, Quota) else tuple(quota for _, quota in quotas)
        first = quotas if isinstance(quotas, Quota) else quotas[0][1]
        Rule(self.policy_name, first if not several else dict(quotas), on_outage=self.on_outage or "allow")  # type: ignore[arg-type]
        self._quotas, self._is_dynamic = quotas, is_dynamic
        self._holds = first.algorithm == "concurrency"
        self._is_fixed = first.algorithm == "fixed_window" and not several and not is_dynamic
        self._text = DYNAMIC if is_dynamic else ";".join(map(str, several or (first,)))
        # What was made of other terms is not found by these.
        self._terms = object()
        if self._holds:
            expect()

    @abc.abstractmethod
    def make_key(self, request: Request) -> str | None | Awaitable[str | None]:
        """The key to count under; None if this request is not limited. May be an `async def`."""

    def make_override_key(self, request: Request) -> str | None:
        """The name of the project's override (see `ratekeeper.keys`); None if none applies."""
        return None

    def make_org_override_key(self, request: Request) -> str | None:
        """The name of the organisation's override; None if none applies."""
        return None

    # Not `Request`: a limiter of an application with WebSockets is called for these as well.
    async def __call__(self, request: HTTPConnection, response: Response) -> None:
        limits = self._limits_of(request)
        mode = current_mode(limits.settings.mode)
        if mode == "off" or not (self._is_plain or await self._applies(request)):
            return
        asked = self._ask(request, limits, mode)  # type: ignore[arg-type]
        if asked is not None:
            decision = asked if isinstance(asked, Decision) else await asked
            if decision is not None:
                limits.note(decision, mode, response, request, blocks=self.block)

    async def hit(self, request: HTTPConnection) -> None:
        """Counts once more from within a handler, such as for a message of a WebSocket; a denial is raised, as by the dependency.

        One that no handler takes closes the WebSocket with 1013, "try again later".
        """
        # What there is to tell stands in the response of the request; one that is open has been answered.
        await self(request, Response())

    async def usage(self, request: HTTPConnection) -> Decision | None:
        """What the next such request would meet; counts nothing. None if this one is not limited."""
        limits = self._limits_of(request)
        key = await self._key(request)
        if key is None:
            return None
        limiter = await self._limiter_for(request, limits)
        if limiter is None:
            return None
        subject, owner = await self._named(request, limiter.store, key)  # type: ignore[arg-type]
        return await limiter.apeek(subject, cost=await self._cost(request), **owner)

    async def reset(self, request: HTTPConnection) -> None:
        """Forgets what was counted for such requests."""
        limits = self._limits_of(request)
        key = await self._key(request)
        limiter = await self._limiter_for(request, limits)
        if key is not None and limiter is not None:
            subject, owner = await self._named(request, limiter.store, key)  # type: ignore[arg-type]
            await limiter.areset(subject, **owner)

    def _limits_of(self, request: HTTPConnection) -> RequestLimits:
        return RequestLimits.of(request.scope)

    def _store_of(self, limits: RequestLimits) -> Store:
        """Where it counts; RuntimeError if nothing says it."""
        return limits.store(self.store)

    async def _applies(self, request: HTTPConnection) -> bool:
        # The opening of a WebSocket has the method of its request.
        if self._methods is not None and request.scope.get("method", "GET") not in self._methods:
            return False
        return self.exempt is None or not await said_of(self.exempt, request)

    async def _cost(self, request: HTTPConnection) -> int:
        return cost_said(await said_of(self.cost, request)) if callable(self.cost) else self.cost

    async def _key(self, request: HTTPConnection) -> str | None:
        found: str | None = await said_of(self.make_key, request)
        return found

    def _ask(self, request: Request, limits: RequestLimits, mode: Mode) -> Asked:
        """The check of a request; None if it is not limited, or needs no more noting."""
        key = self.make_key(request)
        if key is None:
            # That it was not set up is reported, whether the request is limited or not.
            self._store_of(limits)
            return None
        return self._check(request, limits, key, mode)

    async def _check(
        self, request: Request, limits: RequestLimits, found: str | Awaitable[str | None], mode: Mode
    ) -> Decision | None:
        key = await found if inspect.isawaitable(found) else found
        limiter = None if key is None else await self._limiter_for(request, limits)
        if key is None or limiter is None:
            self._store_of(limits)
            return None
        subject, owner = await self._named(request, limiter.store, key)
        places = Places.of(request.scope) if self._holds else None
        asked = limiter.acheck(subject, cost=await self._cost(request), mode=mode, **owner)
        # Of one quota, all that was charged is its place.
        return await (asked if places is None else places.held(asked, limiter.arefund))

    async def _named(self, request: Request, store: Store, key: str) -> tuple[str, dict[str, Any]]:
        """The key as the engine takes it, and whose overrides apply."""
        scope = await self._override_scope(request, store)
        # Only fixed windows are Application Kit's.
        subject = counter_subject(key, self._text, scope if self._is_fixed else None)
        if scope is None:
            return subject, {}
        return subject, {"organisation": scope.organisation, "project": scope.project, "endpoint": scope.endpoint}

    async def _limiter_for(self, request: HTTPConnection, limits: RequestLimits) -> Limiter | None:
        if not self._is_dynamic:
            return self._limiter(limits)[0]
        said = await said_of(self.max_requests, request)  # type: ignore[arg-type]
        if said is None:
            return None
        quotas = quotas_said(said, self.expiry if not isinstance(said, str) else 1, self.algorithm)
        return self._limiter_of(limits, quotas)

    def _limiter(self, limits: RequestLimits) -> tuple[Limiter, bool]:
        """The limiter, and whether it answers without waiting."""
        # With the application's settings and not here: FastAPI keeps dependencies longer than applications.
        return limits.settings.made.get(self._terms) or self._make(limits)

    def _make(self, limits: RequestLimits) -> tuple[Limiter, bool]:
        limiter = self._limiter_of(limits, self._quotas)
        made = (limiter, limiter.store.kind == "memory" and not self._holds)
        limits.settings.keep(self._terms, made)
        return made

    def _limiter_of(self, limits: RequestLimits, quotas: Quota | Quotas) -> Limiter:
        on_outage = self.on_outage or limits.settings.on_outage
        return limits.settings.limiter_of(self._store_of(limits), self.policy_name, quotas, on_outage)

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
