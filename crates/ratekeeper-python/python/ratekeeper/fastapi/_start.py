"""What is wrong with the limits of an application, found when it starts and not with a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from starlette.routing import BaseRoute, Mount

from .._web import warn_of_one_counter
from ._apply import KeyRateLimiter
from ._endpoint import each_route
from ._limiters import ProjectRateLimiter
from ._settings import Settings

# Mounts within mounts; what is deeper is not looked into.
_MOUNTS_MAX = 16


def check_routes(routes: Sequence[BaseRoute], settings: Settings) -> None:
    """Raises ValueError if two limits of different numbers would count in one counter of Application Kit, or if policies
    that refuse unknown services know nothing of one that a limiter names. Limiters that are Application Kit's count so."""
    known: dict[tuple[object, str], ProjectRateLimiter] = {}
    for around, path, limiter in _limiters(routes, "", _MOUNTS_MAX):
        if isinstance(limiter, KeyRateLimiter):
            policies = limiter.policies or settings.policies
            if policies is not None:
                policies.service(limiter.service)
        elif limiter.shares_counter:
            counter = limiter.counter_of(settings, around, path)
            _refuse(known.setdefault(counter, limiter), limiter, counter[1])


def _refuse(first: ProjectRateLimiter, second: ProjectRateLimiter, endpoint: str) -> None:
    if first.quota == second.quota:
        return
    if not (first.refuses_shared and second.refuses_shared):
        return warn_of_one_counter(endpoint, str(first.quota), str(second.quota))
    raise ValueError(
        f"{endpoint}: got two limits by project, {first.quota} and {second.quota}, for which Application Kit "
        "has one counter; expected one, or a counter of its own for the second, such as "
        f'ProjectRateLimiter({second.max_requests}, {second.expiry}, key_suffix="/second")'
    )


Found = ProjectRateLimiter | KeyRateLimiter


def _limiters(routes: Sequence[BaseRoute], around: str, depth: int) -> Iterator[tuple[str, str, Found]]:
    for route in each_route(routes) if depth else ():
        path = str(getattr(route, "path", ""))
        if isinstance(route, Mount):
            yield from _limiters(route.routes, around + path, depth - 1)
            continue
        dependant = getattr(route, "dependant", None)
        if dependant is not None:
            # FastAPI calls one that a route has twice only once.
            found = {id(limiter): limiter for limiter in _of(dependant)}
            yield from ((around, path, limiter) for limiter in found.values())


def _of(dependant: Any) -> Iterator[Found]:
    for dependency in dependant.dependencies:
        yield from _of(dependency)
        if isinstance(dependency.call, Found):
            yield dependency.call
