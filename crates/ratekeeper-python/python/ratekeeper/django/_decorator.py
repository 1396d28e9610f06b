"""The decorator for views."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeAlias, TypeVar, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from .._late import taken
from .._modes import Mode
from .._native import Decision, Limiter, Rule
from .._rates import quotas_said
from .._tracing import check_span
from .._web import OnOutage, Pair, check_kind, check_plain_callable, warn_of_nobody
from ..keys import counter_subject, make_rate_limit_key
from . import _settings
from ._checks import warn_of_no_middleware
from ._exceeded import RequestLimits, noted
from ._keys import KeyOf, key_named
from ._terms import Terms, bound_method, http_method, limits_of, marked

View = TypeVar("View", bound=Callable[..., Any])
# A number, a text such as "5/m;100/h", or a function of the request that says either; None: not limited.
Rate: TypeAlias = int | str | Callable[[HttpRequest], "int | str | None"]


def rate_limit(
    max_requests: Rate,
    expiry: int = 1,
    endpoint_name: str | None = None,
    store: str = "default",
    policy_name: str = "requests",
    *,
    key: KeyOf | str | None = None,
    group: str | None = None,
    methods: Collection[str] | None = None,
    block: bool = True,
    cost: int = 1,
    algorithm: str = "fixed_window",
    on_outage: OnOutage | None = None,
    span: str | None = None,
    is_kit: bool = False,
) -> Callable[[View], View]:
    """At most `max_requests` in `expiry` seconds for each project on this endpoint.

    For sync and async views, also of Django Ninja; methods need Django's `method_decorator`. It must
    run after authentication, so stand below its decorator: requests of nobody that RATELIMIT_PROJECT
    knows are not limited.

    `max_requests`: also a text with one rate or several, `"5/m;100/h"`, or a plain function of the request that says a number
    or a text. `endpoint_name`, or `group`: by default the URL pattern, as in `/api/v1/datasets/<int:dataset_id>/search`; of a
    method of a class with its name, as in `/api/v1/datasets:post`, so that each has a counter of its own.
    `store`: a name in RATELIMIT_STORES. `key` counts by something else than the project, without overrides: a function, of which
    None means not limited, or "ip", "user", "user_or_ip", "header:x-real-ip", "get:q", "post:name". `methods`: those that are
    limited. `block=False` denies nothing: `request.limited` says what would have been. `algorithm`: another than Application
    Kit's fixed window. `span`: the name of a span around every check. `is_kit`: all methods of a class count in one counter, as
    in Application Kit.

    Raises ValueError if a number is below 1; the view raises `RateLimitExceeded`.
    """
    terms, limiter_for = _limit(max_requests, expiry, algorithm, _named(endpoint_name, group), store, policy_name, on_outage)
    terms = terms._replace(is_by_project=key is None, is_kit=is_kit)
    key_of = None if key is None else key_named(key)
    only = None if methods is None else frozenset(check_kind("methods", method, str).upper() for method in _several(methods))
    check_kind("cost", cost, int)
    if cost < 1:
        raise ValueError("cost must be at least 1")

    def decorate(view: View) -> View:
        limits = terms.beside(limits_of(view))
        warn_of_no_middleware()
        ask = Asking(_name_of(view), terms, key_of, limiter_for, method=http_method(view), only=only, cost=cost)
        around: Callable[[], Any] = functools.partial(check_span, span) if span else contextlib.nullcontext

        if _is_async(view):

            @functools.wraps(view)
            async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                with around():
                    if (asked := ask.about(request)) is not None:
                        decision = await asked.awaited()
                        denied = noted(request, decision, asked.limiter, asked.endpoint, blocks=block)
                        if denied is not None:
                            return denied
                return await view(request, *args, **kwargs)

            return cast(View, marked(limited_async, limits))

        @functools.wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            with around():
                if (asked := ask.about(request)) is not None:
                    denied = noted(request, asked.blocking(), asked.limiter, asked.endpoint, blocks=block)
                    if denied is not None:
                        return denied
            return view(request, *args, **kwargs)

        return cast(View, marked(limited, limits))

    return decorate


LimiterFor: TypeAlias = Callable[[HttpRequest], Limiter | None]


def _limit(
    rate: Rate, expiry: int, algorithm: str, endpoint: str | None, store: str, policy_name: str,
    on_outage: OnOutage | None,
) -> tuple[Terms, LimiterFor]:
    """The terms of a limit, and its limiter for a request. Tells what is wrong now, not with the first request."""
    function = check_plain_callable("max_requests", rate) if callable(rate) else None
    quotas = quotas_said(1 if callable(rate) else rate, 1 if callable(rate) else expiry, algorithm)
    said = dict(quotas) if isinstance(quotas, tuple) else quotas
    Rule(policy_name, said, on_outage=on_outage or "allow")
    _settings.check_store(store)

    def limiter_for(request: HttpRequest) -> Limiter | None:
        of_request = quotas
        if function is not None:
            found = function(request)
            if found is None:
                return None
            of_request = quotas_said(found, 1 if isinstance(found, str) else expiry, algorithm)
        return _settings.limiter_of(store, policy_name, of_request, on_outage or _settings.on_outage())

    return Terms(store, endpoint, quotas, is_by_project=True, is_dynamic=function is not None), limiter_for


def _named(endpoint_name: str | None, group: str | None) -> str | None:
    if endpoint_name is not None and group is not None:
        raise ValueError("group: got one beside endpoint_name, which is the same; expected one of them")
    return group if endpoint_name is None else endpoint_name


def _several(methods: Collection[str]) -> Collection[str]:
    if isinstance(methods, str):
        raise TypeError(f"methods: got a text; expected several, such as [{methods!r}]")
    return methods


def _name_of(view: Callable[..., Any]) -> str:
    return f"{getattr(view, '__module__', '')}.{getattr(view, '__qualname__', repr(view))}"


def _is_async(view: Any) -> bool:
    """Whether what a view returns is awaited: it says so itself, or the class that it is a method of."""
    if iscoroutinefunction(view):
        return True
    # `dispatch` of an async class is a plain method that returns a coroutine.
    owner = getattr(bound_method(view), "__self__", None)
    return bool(getattr(owner, "view_is_async", False))


class Question:
    """One check that is to be made: waiting for it, or awaiting it."""

    __slots__ = ("cost", "endpoint", "holds", "limiter", "mode", "project", "subject")

    def __init__(
        self,
        limiter: Limiter,
        endpoint: str,
        mode: Mode,
        project: Pair | None = None,
        subject: str | None = None,
        *,
        holds: bool,
        cost: int,
    ) -> None:
        self.limiter = limiter
        self.endpoint = endpoint
        self.mode: Mode = mode
        self.project = project
        # The key to count under; without one, a project's is Application Kit's.
        self.subject = subject
        self.holds = holds
        self.cost = cost

    def blocking(self) -> Decision:
        if self.subject is None and self.project is not None:
            return self.limiter.check_project(self.endpoint, *self.project, cost=self.cost, mode=self.mode)
        return self.limiter.check(self.subject, cost=self.cost, mode=self.mode, **self._owner())

    def awaited(self) -> Awaitable[Decision]:
        return taken(self._awaited(), self.limiter.arefund) if self.holds else self._awaited()

    def peeked(self) -> Decision:
        """What it would meet; counts nothing."""
        subject = self.subject
        if subject is None and self.project is not None:
            key = make_rate_limit_key(self.endpoint, *self.project)
            subject = key.removeprefix("ratelimit:")
        return self.limiter.peek(subject, cost=self.cost, mode=self.mode, **self._owner())

    def _awaited(self) -> Awaitable[Decision]:
        if self.subject is None and self.project is not None:
            return self.limiter.acheck_project(self.endpoint, *self.project, cost=self.cost, mode=self.mode)
        return self.limiter.acheck(self.subject, cost=self.cost, mode=self.mode, **self._owner())

    def _owner(self) -> dict[str, Any]:
        """Whose overrides apply."""
        if self.project is None:
            return {}
        return {"endpoint": self.endpoint, "organisation": self.project[0], "project": self.project[1]}


class Asking:
    """What a decorated view asks about a request."""

    def __init__(
        self,
        name: str,
        terms: Terms,
        key: KeyOf | None,
        limiter_for: LimiterFor,
        *,
        method: str | None = None,
        only: frozenset[str] | None = None,
        cost: int = 1,
    ) -> None:
        self.name = name
        self.terms = terms
        self.method = method
        self.key = key
        self.limiter_for = limiter_for
        self.only = only
        self.cost = cost
        self.holds = terms.algorithm == "concurrency"

    def about(self, request: HttpRequest) -> Question | None:
        """The question; None if this request is not limited."""
        if not hasattr(request, "META"):
            raise TypeError(
                f"rate_limit: {self.name} got {type(request).__name__} first; expected a request "
                "(methods need django.utils.decorators.method_decorator)"
            )
        mode = _settings.mode()
        if mode == "off" or (self.only is not None and request.method not in self.only):
            return None
        if self.holds and not RequestLimits.of(request).is_watched:
            raise ImproperlyConfigured(
                f"rate_limit: {self.name} has a limit of concurrency, and nobody gives places back; "
                "expected ratekeeper.django.RateLimitMiddleware in MIDDLEWARE"
            )
        limiter = self.limiter_for(request)
        if limiter is None:
            return None
        endpoint = self.terms.endpoint(endpoint_of(request) or self.name, self.method)
        if self.key is not None:
            key = self.key(request)
            if key is None:
                return None
            subject = counter_subject(f"{endpoint}:{key}", self.terms.text, None)
            return Question(limiter, endpoint, mode, subject=subject, holds=self.holds, cost=self.cost)
        project = _settings.project_of(request)
        if project is None:
            warn_of_nobody(endpoint, "RATELIMIT_PROJECT")
            return None
        # Only fixed windows are Application Kit's.
        own: str | None = None
        if not self.terms.is_shared:
            own = counter_subject(make_rate_limit_key(endpoint, *project), self.terms.text, None)
        return Question(limiter, endpoint, mode, project, own, holds=self.holds, cost=self.cost)


def endpoint_of(request: HttpRequest) -> str | None:
    """The URL pattern of a request, with a slash before it; None if it was not resolved."""
    match = getattr(request, "resolver_match", None)
    return None if match is None else "/" + match.route.removeprefix("/")
