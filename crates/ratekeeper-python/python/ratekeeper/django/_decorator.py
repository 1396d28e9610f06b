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
from .._web import OnOutage, Pair, quota_of, warn_of_nobody
from ..keys import bounded
from . import _settings
from ._exceeded import RequestLimits

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

    `endpoint_name`: by default the URL pattern, as in `/api/v1/datasets/<int:dataset_id>/search`.
    `store`: a name in RATELIMIT_STORES. `key` counts by something else than the project, without
    overrides; None means not limited. `algorithm`: another than Application Kit's fixed window.

    Raises ValueError if a number is below 1; the view raises `RateLimitExceeded`.
    """
    quota = quota_of(max_requests, expiry, algorithm)
    # Tells what is wrong with a name or a word now, not with the first request.
    Rule(policy_name, quota, on_outage=on_outage or "allow")
    _settings.check_store(store)

    def limiter() -> Limiter:
        return _settings.limiter_of(store, policy_name, quota, on_outage or _settings.on_outage())

    def decorate(view: View) -> View:
        ask = _Asking(view, endpoint_name, key, limiter, holds=quota.algorithm == "concurrency")

        if _is_async(view):

            @functools.wraps(view)
            async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                if (asked := ask.about(request)) is not None:
                    RequestLimits.of(request).note(await asked.awaited(), asked.limiter, asked.endpoint)
                return await view(request, *args, **kwargs)

            return cast(View, limited_async)

        @functools.wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if (asked := ask.about(request)) is not None:
                RequestLimits.of(request).note(asked.blocking(), asked.limiter, asked.endpoint)
            return view(request, *args, **kwargs)

        return cast(View, limited)

    return decorate


def _is_async(view: Any) -> bool:
    """Whether what a view returns is awaited: it says so itself, or the class that it is a method of."""
    if iscoroutinefunction(view):
        return True
    # `dispatch` of an async class is a plain method that returns a coroutine. `method_decorator` hands it
    # on as a partial of the bound one, perhaps within other decorators.
    while view is not None and not isinstance(view, functools.partial):
        view = getattr(view, "__wrapped__", None)
    owner = getattr(getattr(view, "func", None), "__self__", None)
    return bool(getattr(owner, "view_is_async", False))


class _Question:
    """One check that is to be made: waiting for it, or awaiting it."""

    __slots__ = ("endpoint", "holds", "key", "limiter", "mode", "project")

    def __init__(
        self,
        limiter: Limiter,
        endpoint: str,
        mode: Mode,
        project: Pair | None = None,
        key: str = "",
        *,
        holds: bool,
    ) -> None:
        self.limiter = limiter
        self.endpoint = endpoint
        self.mode: Mode = mode
        self.project = project
        self.key = key
        self.holds = holds

    def blocking(self) -> Decision:
        if self.project is None:
            return self.limiter.check(self.key, mode=self.mode)
        return self.limiter.check_project(self.endpoint, *self.project, mode=self.mode)

    def awaited(self) -> Awaitable[Decision]:
        return taken(self._awaited(), self.limiter.arefund) if self.holds else self._awaited()

    def _awaited(self) -> Awaitable[Decision]:
        if self.project is None:
            return self.limiter.acheck(self.key, mode=self.mode)
        return self.limiter.acheck_project(self.endpoint, *self.project, mode=self.mode)


class _Asking:
    """What a decorated view asks about a request."""

    def __init__(
        self,
        view: Callable[..., Any],
        endpoint_name: str | None,
        key: Callable[[HttpRequest], str | None] | None,
        limiter: Callable[[], Limiter],
        *,
        holds: bool,
    ) -> None:
        self.name = f"{getattr(view, '__module__', '')}.{getattr(view, '__qualname__', repr(view))}"
        self.endpoint_name = endpoint_name
        self.key = key
        self.limiter = limiter
        self.holds = holds

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
        endpoint = self.endpoint_name or endpoint_of(request) or self.name
        if self.key is not None:
            key = self.key(request)
            subject = None if key is None else bounded(f"{endpoint}:{key}")
            if subject is None:
                return None
            return _Question(self.limiter(), endpoint, mode, key=subject, holds=self.holds)
        project = _settings.project_of(request)
        if project is None:
            warn_of_nobody(endpoint, "RATELIMIT_PROJECT")
            return None
        return _Question(self.limiter(), endpoint, mode, project, holds=self.holds)


def endpoint_of(request: HttpRequest) -> str | None:
    """The URL pattern of a request, with a slash before it; None if it was not resolved."""
    match = getattr(request, "resolver_match", None)
    return None if match is None else "/" + match.route.removeprefix("/")
