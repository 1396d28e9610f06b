"""Limits that are asked for from within views, and the decorator of django-ratelimit in its own words."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection
from typing import Any, TypedDict, TypeVar

from django.http import HttpRequest

from .._native import Decision
from ._decorator import Asking, Question, Rate, _limit, _name_of, rate_limit
from ._exceeded import RequestLimits
from ._keys import KeyOf, key_named

View = TypeVar("View", bound=Callable[..., Any])

ALL: tuple[str, ...] | None = None
UNSAFE = ("DELETE", "PATCH", "POST", "PUT")


class Usage(TypedDict):
    """How much of a limit is used."""

    count: int
    limit: int
    should_limit: bool
    time_left: int


def is_ratelimited(
    request: HttpRequest,
    group: str | None = None,
    fn: Callable[..., Any] | None = None,
    key: KeyOf | str = "ip",
    rate: Rate = "5/m",
    method: str | Collection[str] | None = ALL,
    increment: bool = False,
    *,
    store: str = "default",
) -> bool:
    """Whether a request is over a limit. Counts it only with `increment=True`; sets `request.limited`.

    `group` is by default the name of `fn`, or else the URL pattern.
    """
    decision = _asked(request, _group_of(group, fn), key, rate, method, increment, store)
    limited = decision is not None and not decision.allowed
    request.limited = getattr(request, "limited", False) or limited  # type: ignore[attr-defined]
    return limited


def get_usage(
    request: HttpRequest,
    group: str | None = None,
    fn: Callable[..., Any] | None = None,
    key: KeyOf | str = "ip",
    rate: Rate = "5/m",
    method: str | Collection[str] | None = ALL,
    increment: bool = False,
    *,
    store: str = "default",
) -> Usage | None:
    """How much of a limit is used; None if the request is not limited. Counts it only with `increment=True`.

    `group` is by default the name of `fn`, or else the URL pattern.
    """
    decision = _asked(request, _group_of(group, fn), key, rate, method, increment, store)
    verdict = None if decision is None else decision.strictest
    if decision is None or verdict is None:
        return None
    return Usage(
        count=verdict.limit - verdict.remaining, limit=verdict.limit, should_limit=not decision.allowed,
        time_left=math.ceil(verdict.reset_after),
    )


def ratelimit(
    group: str | None = None,
    key: KeyOf | str = "ip",
    rate: Rate = "5/m",
    method: str | Collection[str] | None = ALL,
    block: bool = True,
) -> Callable[[View], View]:
    """`django_ratelimit.decorators.ratelimit`, with the arguments that it has there."""
    return rate_limit(rate, key=key, group=group, methods=_methods(method), block=block)


def _methods(method: str | Collection[str] | None) -> Collection[str] | None:
    return (method,) if isinstance(method, str) else method


def _group_of(group: str | None, fn: Callable[..., Any] | None) -> str | None:
    if group is not None or fn is None:
        return group
    while isinstance(fn, functools.partial):
        fn = fn.func
    return _name_of(fn)


def _asked(
    request: HttpRequest, group: str | None, key: KeyOf | str, rate: Rate, method: str | Collection[str] | None,
    increment: bool, store: str,
) -> Decision | None:
    terms, limiter_for = _limit(rate, 1, "fixed_window", group, store, "requests", None)
    methods = _methods(method)
    only = None if methods is None else frozenset(name.upper() for name in methods)
    asking = Asking("is_ratelimited", terms._replace(is_by_project=False), key_named(key), limiter_for, only=only)
    question: Question | None = asking.about(request)
    if question is None:
        return None
    if not increment:
        return question.peeked()
    decision = question.blocking()
    RequestLimits.of(request).tally.add(decision)
    return decision
