"""The decorator for views."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest

from .._late import taken
from .._modes import Mode
from .._native import Decision, Limiter, Rule
from .._web import OnOutage, Pair, check_plain_callable, quota_of, warn_of_nobody
from ..keys import counter_subject, make_rate_limit_key
from . import _settings
from ._checks import warn_of_no_middleware
from ._exceeded import RequestLimits, noted
from ._terms import Terms, bound_method, http_method, limits_of, marked

View = TypeVar("View", bound=Callable[..., Any])


def rate_limit(
    max_requests: int,
    expiry: int = 1,
    endpoint_name: str | None = None,
    store: str = "default",
    policy_name: str = "requests",
    *,
    key: Callable[[HttpRequest], str | None] | None = None,
    algorithm: str = "fixed_window",
    on_outage: OnOutage | None = None,
) -> Callable[[View], View]:
    """At most `max_requests` in `expiry` seconds for each project on this endpoint.

    For sync and async views, also of Django Ninja; methods need Django's `method_decorator`. It must
    run after authentication, so stand below its decorator: requests of nobody that RATELIMIT_PROJECT
    knows are not limited.

    `endpoint_name`: by default the URL pattern, as in `/api/v1/datasets/<int:dataset_id>/search`; of a method of a
    class with its name, as in `/api/v1/datasets:post`, so that each has a counter of its own.
    `store`: a name in RATELIMIT_STORES. `key` is a function that counts by something else than the project, without
    overrides; None means not limited. `algorithm`: another than Application Kit's fixed window.

    Raises ValueError if a number is below 1; the view raises `RateLimitExceeded`.
    """
    quota = quota_of(max_requests, expiry, algorithm)
    # Tells what is wrong with a name or a word now, not with the first request.
    Rule(policy_name, quota, on_outage=on_outage or "allow")
    _settings.check_store(store)
    if key is not None:
        _check_key(key)
    terms = Terms(store, endpoint_name, quota, is_by_project=key is None)

    def limiter() -> Limiter:
        return _settings.limiter_of(store, policy_name, quota, on_outage or _settings.on_outage())

    def decorate(view: View) -> View:
        limits = terms.beside(limits_of(view))
        warn_of_no_middleware()
        ask = _Asking(view, terms, key, limiter)

        if _is_async(view):

            @functools.wraps(view)
            async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                if (asked := ask.about(request)) is not None:
                    denied = noted(request, await asked.awaited(), asked.limiter, asked.endpoint)
                    if denied is not None:
                        return denied
                return await view(request, *args, **kwargs)

            return cast(View, marked(limited_async, limits))

        @functools.wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if (asked := ask.about(request)) is not None:
                denied = noted(request, asked.blocking(), asked.limiter, asked.endpoint)
                if denied is not None:
                    return denied
            return view(request, *args, **kwargs)

        return cast(View, marked(limited, limits))

    return decorate


def _check_key(key: object) -> None:
    try:
        check_plain_callable("key", key)
    except TypeError as error:
        raise TypeError(f'{error}; such as key=lambda request: request.META["REMOTE_ADDR"]') from None


def _is_async(view: Any) -> bool:
    """Whether what a view returns is awaited: it says so itself, or the class that it is a method of."""
    if iscoroutinefunction(view):
        return True
    # `dispatch` of an async class is a plain method that returns a coroutine.
    owner = getattr(bound_method(view), "__self__", None)
    return bool(getattr(owner, "view_is_async", False))


class _Question:
    """One check that is to be made: waiting for it, or awaiting it."""

    __slots__ = ("endpoint", "holds", "limiter", "mode", "project", "subject")

    def __init__(
        self,
        limiter: Limiter,
        endpoint: str,
        mode: Mode,
        project: Pair | None = None,
        subject: str | None = None,
        *,
        holds: bool,
    ) -> None:
        self.limiter = limiter
        self.endpoint = endpoint
        self.mode: Mode = mode
        self.project = project
        # The key to count under; without one, a project's is Application Kit's.
        self.subject = subject
        self.holds = holds

    def blocking(self) -> Decision:
        if self.subject is None and self.project is not None:
            return self.limiter.check_project(self.endpoint, *self.project, mode=self.mode)
        return self.limiter.check(self.subject, mode=self.mode, **self._owner())

    def awaited(self) -> Awaitable[Decision]:
        return taken(self._awaited(), self.limiter.arefund) if self.holds else self._awaited()

    def _awaited(self) -> Awaitable[Decision]:
        if self.subject is None and self.project is not None:
            return self.limiter.acheck_project(self.endpoint, *self.project, mode=self.mode)
        return self.limiter.acheck(self.subject, mode=self.mode, **self._owner())

    def _owner(self) -> dict[str, Any]:
        """Whose overrides apply."""
        if self.project is None:
            return {}
        return {"endpoint": self.endpoint, "organisation": self.project[0], "project": self.project[1]}


class _Asking:
    """What a decorated view asks about a request."""

    def __init__(
        self,
        view: Callable[..., Any],
        terms: Terms,
        key: Callable[[HttpRequest], str | None] | None,
        limiter: Callable[[], Limiter],
    ) -> None:
        self.name = f"{getattr(view, '__module__', '')}.{getattr(view, '__qualname__', repr(view))}"
        self.terms = terms
        self.method = http_method(view)
        self.key = key
        self.limiter = limiter
        self.holds = terms.quota.algorithm == "concurrency"

    def about(self, request: HttpRequest) -> _Question | None:
        """The question; None if this request is not limited."""
        if not hasattr(request, "META"):
            raise TypeError(
                f"rate_limit: {self.name} got {type(request).__name__} first; expected a request "
                "(methods need django.utils.decorators.method_decorator)"
            )
        mode = _settings.mode()
        if mode == "off":
            return None
        if self.holds and not RequestLimits.of(request).is_watched:
            raise ImproperlyConfigured(
                f"rate_limit: {self.name} has a limit of concurrency, and nobody gives places back; "
                "expected ratekeeper.django.RateLimitMiddleware in MIDDLEWARE"
            )
        endpoint = self.terms.endpoint(endpoint_of(request) or self.name, self.method)
        if self.key is not None:
            key = self.key(request)
            if key is None:
                return None
            subject = counter_subject(f"{endpoint}:{key}", self.terms.text, None)
            return _Question(self.limiter(), endpoint, mode, subject=subject, holds=self.holds)
        project = _settings.project_of(request)
        if project is None:
            warn_of_nobody(endpoint, "RATELIMIT_PROJECT")
            return None
        # Only fixed windows are Application Kit's.
        own: str | None = None
        if not self.terms.is_shared:
            own = counter_subject(make_rate_limit_key(endpoint, *project), self.terms.text, None)
        return _Question(self.limiter(), endpoint, mode, project, own, holds=self.holds)


def endpoint_of(request: HttpRequest) -> str | None:
    """The URL pattern of a request, with a slash before it; None if it was not resolved."""
    match = getattr(request, "resolver_match", None)
    return None if match is None else "/" + match.route.removeprefix("/")
