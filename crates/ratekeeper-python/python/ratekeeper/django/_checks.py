"""What is wrong with the limits of a site, found by `manage.py check`, or when the middleware is loaded."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string

from ._terms import Terms, limits_of

_MIDDLEWARE = "ratekeeper.django.RateLimitMiddleware"
# Patterns within patterns; what is deeper is not looked into.
_INCLUDES_MAX = 16

_log = logging.getLogger("ratekeeper")


def has_middleware() -> bool:
    """Whether MIDDLEWARE has ours, or one that is made of it."""
    return any(name == _MIDDLEWARE or _is_ours(_imported(name)) for name in settings.MIDDLEWARE)


def _imported(name: str) -> object:
    try:
        return import_string(name)
    except ImportError:
        # Django will tell.
        return None


def _is_ours(found: object) -> bool:
    from ._middleware import RateLimitMiddleware

    return isinstance(found, type) and issubclass(found, RateLimitMiddleware)


def _may_be_ours(name: str) -> bool:
    # Views may be imported by a middleware, so this imports none.
    module, _, attribute = name.rpartition(".")
    if module not in sys.modules:
        return not name.startswith("django.")
    return _is_ours(getattr(sys.modules[module], attribute, None))


@functools.cache
def warn_of_no_middleware() -> None:
    """Says once that responses will not tell of limits, if that can be known before there are requests."""
    # Cached: that is what makes it once.
    if settings.configured and not any(name == _MIDDLEWARE or _may_be_ours(name) for name in settings.MIDDLEWARE):
        _log.warning(_NO_MIDDLEWARE)


_NO_MIDDLEWARE = (
    f"views have limits, and MIDDLEWARE has no {_MIDDLEWARE}: put it first, "
    "or responses do not tell of limits, and limits of concurrency fail"
)


def each_limit() -> Iterator[tuple[str, Terms]]:
    """The limits of all views that the site has URLs for, each with its endpoint."""
    yield from _limits(get_resolver().url_patterns, "", _INCLUDES_MAX)


def _limits(patterns: Any, around: str, depth: int) -> Iterator[tuple[str, Terms]]:
    for pattern in patterns if depth else ():
        route = around + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _limits(pattern.url_patterns, route, depth - 1)
        elif isinstance(pattern, URLPattern):
            yield from _of_view(pattern.callback, "/" + route.removeprefix("/"))


def _of_view(view: Any, pattern: str) -> Iterator[tuple[str, Terms]]:
    for terms in limits_of(view):
        yield terms.endpoint(pattern, None), terms
    owner = getattr(view, "view_class", None)
    for name in getattr(owner, "http_method_names", ()):
        for terms in limits_of(getattr(owner, name, None)):
            yield terms.endpoint(pattern, name), terms


def stores_of_limits() -> set[str]:
    """The names of the stores that the limits of all views count in."""
    return {terms.store for _, terms in each_limit()} if getattr(settings, "ROOT_URLCONF", None) else set()


def check_limits() -> None:
    """Raises ImproperlyConfigured if two limits of different numbers would count in one counter; as Application Kit's, they
    are only told."""
    if not getattr(settings, "ROOT_URLCONF", None):
        return
    known: dict[tuple[str, str], Terms] = {}
    for endpoint, terms in each_limit():
        if terms.is_shared:
            terms.refuse(known.setdefault((terms.store, endpoint), terms), endpoint)


@register("ratekeeper")
def site_check(app_configs: object, **_: object) -> list[CheckMessage]:
    """For `manage.py check`."""
    found: list[CheckMessage] = []
    if not getattr(settings, "ROOT_URLCONF", None):
        return found
    if not has_middleware() and any(True for _ in each_limit()):
        found.append(Warning(_NO_MIDDLEWARE, id="ratekeeper.W001"))
    try:
        check_limits()
    except ImproperlyConfigured as error:
        found.append(Error(str(error), id="ratekeeper.E001"))
    return found
