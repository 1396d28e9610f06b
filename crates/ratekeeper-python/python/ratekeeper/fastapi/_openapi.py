"""Limits in the OpenAPI document: extensions for programs, a line for people."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from .._native import PolicyLimiter, Quota
from ._apply import KeyRateLimiter
from ._endpoint import each_route
from ._limiter import RateLimiter
from ._settings import Settings

_LIMIT = "x-ratelimit-limit"
_WINDOW = "x-ratelimit-window-seconds"
_POLICIES = "x-ratelimit-policies"


# The limits of an operation: its path, its method, and quotas by their names.
Limits = tuple[str, str, list[tuple[str, Quota]]]


def describe(app: FastAPI, settings: Settings | None = None) -> None:
    """Makes `app.openapi()` tell the limits of its operations, as they are when it is asked.

    Those of limiters that are dependencies, and with a `service` those of its policy. What
    handlers apply themselves is not known beforehand.
    """
    original = app.openapi
    known = settings or Settings()
    latest: tuple[dict[str, Any], list[Limits], dict[str, Any]] | None = None

    def openapi() -> dict[str, Any]:
        nonlocal latest
        # FastAPI keeps its document, and makes a new one when there are new routes. Policies change without.
        document, limits = original(), list(_limits(app, known))
        if latest is None or latest[0] is not document or latest[1] != limits:
            latest = document, limits, _annotated(document, limits)
        return latest[2]

    app.openapi = openapi  # type: ignore[method-assign]


def _limits(app: FastAPI, settings: Settings) -> Iterator[Limits]:
    for route in each_route(app.routes):
        dependant = getattr(route, "dependant", None)
        if dependant is None:
            continue
        for method in sorted(route.methods or ()):
            of_policy = _of_policy(settings.policies, settings.service, method, route.path)
            found = [*of_policy, *_of_dependencies(dependant, settings, method, route.path)]
            if found:
                yield route.path_format, method.lower(), found


def _annotated(document: dict[str, Any], limits: list[Limits]) -> dict[str, Any]:
    document = copy.deepcopy(document)
    for path, method, found in limits:
        operation = document.get("paths", {}).get(path, {}).get(method)
        if operation is not None and _LIMIT not in operation:
            _write(operation, found)
    return document


def _of_dependencies(
    dependant: Any, settings: Settings, method: str, route: str
) -> Iterator[tuple[str, Quota]]:
    for dependency in dependant.dependencies:
        yield from _of_dependencies(dependency, settings, method, route)
        limiter = dependency.call
        if isinstance(limiter, RateLimiter):
            yield from limiter.quotas
        elif isinstance(limiter, KeyRateLimiter):
            yield from _of_policy(limiter.policies or settings.policies, limiter.service, method, route)


def _of_policy(
    policies: PolicyLimiter | None, service: str | None, method: str, route: str
) -> list[tuple[str, Quota]]:
    if service is None or policies is None:
        return []
    return policies.policies.endpoint_limits(service, method, route)


def _write(operation: dict[str, Any], limits: list[tuple[str, Quota]]) -> None:
    told = [_words(quota) for _, quota in limits]
    if len(limits) > 1:
        told = [f"{words} ({name})" for words, (name, _) in zip(told, limits, strict=True)]
        operation[_POLICIES] = [_policy(name, quota) for name, quota in limits]
    line = f"**Ratelimit:** {', '.join(told)}"
    before = operation.get("description")
    operation["description"] = f"{before}\n\n{line}" if before else line
    first = next((quota for _, quota in limits if quota.algorithm != "concurrency"), None)
    if first is not None:
        operation[_LIMIT] = first.limit
        operation[_WINDOW] = math.ceil(first.window)
    operation.setdefault("responses", {}).setdefault("429", {"description": "Rate limit exceeded"})


def _words(quota: Quota) -> str:
    if quota.algorithm == "concurrency":
        return f"{quota.limit} at once"
    return f"{quota.limit}/{quota.window:g}s"


def _policy(name: str, quota: Quota) -> dict[str, Any]:
    if quota.algorithm == "concurrency":
        return {"name": name, "limit": quota.limit, "unit": "concurrent-requests"}
    return {"name": name, "limit": quota.limit, "window-seconds": math.ceil(quota.window)}
