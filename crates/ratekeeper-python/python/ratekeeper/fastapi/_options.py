"""What a limiter of FastAPI may be told beside its limit: when it applies, what a request costs, what a denial does."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeAlias

from starlette.requests import HTTPConnection, Request

from .._web import check_callable, check_kind

# A number, a text such as "5/minute;100/hour", or a function of the request that says either; None: not limited.
Said: TypeAlias = int | str | None
Rate: TypeAlias = int | str | Callable[[Request], Said | Awaitable[Said]]
Exempt: TypeAlias = Callable[[Request], bool | Awaitable[bool]]
Cost: TypeAlias = int | Callable[[Request], int | Awaitable[int]]

# What counters of limits are called that a function says: the count goes on if the number changes.
DYNAMIC = "dynamic"


def check_options(methods: Collection[str] | None, exempt: Exempt | None, cost: Cost, block: bool) -> frozenset[str] | None:
    """Tells what is wrong with options now, not with the first request; the methods in upper case."""
    if exempt is not None:
        check_callable("exempt", exempt)
    if not callable(cost):
        check_kind("cost", cost, int)
        if cost < 1:
            raise ValueError("cost must be at least 1")
    check_kind("block", block, bool)
    if methods is None:
        return None
    if isinstance(methods, str):
        raise TypeError(f"methods: got a text; expected several, such as [{methods!r}]")
    return frozenset(check_kind("methods", method, str).upper() for method in methods)


async def said_of(function: Callable[[Any], Any], request: HTTPConnection) -> Any:
    """What a function of the service says of a request, plain or async."""
    found = function(request)
    return await found if inspect.isawaitable(found) else found


def cost_said(cost: object) -> int:
    """What a function said that a request costs."""
    if isinstance(cost, bool) or not isinstance(cost, int):
        raise TypeError(f"cost: expected int, got {type(cost).__name__}")
    if cost < 1:
        raise ValueError("cost must be at least 1")
    return cost
