"""Limits in the OpenAPI document: extensions for programs, a line for people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from .._native import Quota
from ._endpoint import each_route
from ._limiter import RateLimiter
from ._settings import Settings

_LIMIT = "x-ratelimit-limit"
_WINDOW = "x-ratelimit-window-seconds"
_POLICIES = "x-ratelimit-policies"


def describe(app: FastAPI, settings: Settings | None = None) -> None:
    """Makes `app.openapi()` tell the limits of its operations.

    Those of limiters that are dependencies, and with a `service` those of its policy. What
    handlers apply themselves is not known beforehand.
    """
    original = app.openapi
    described: dict[str, Any] | None = None

    def openapi() -> dict[str, Any]:
        nonlocal described
        document = original()
        # FastAPI keeps its document, and makes a new one when there are new routes.
        if document is not described:
            _annotate(document, app, settings or Settings())
            described = document
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _annotate(document: dict[str, Any], app: FastAPI, settings: Settings) -> None:
    for route in each_route(app.routes):
        operations = document.get("paths", {}).get(getattr(route, "path_format", None), {})
        for method in getattr(route, "methods", None) or ():
            operation = operations.get(method.lower())
            if operation is not None and _LIMIT not in operation:
                limits = [*_of_policy(settings, method, route.path), *_of_dependencies(route.dependant)]
                _write(operation, limits)


def _of_dependencies(dependant: Any) -> Iterator[tuple[str, Quota]]:
    for dependency in dependant.dependencies:
        yield from _of_dependencies(dependency)
        if isinstance(dependency.call, RateLimiter):
            yield dependency.call.policy_name, dependency.call.quota


def _of_policy(settings: Settings, method: str, route: str) -> list[tuple[str, Quota]]:
    if settings.service is None or settings.policies is None:
        return []
    return settings.policies.policies.endpoint_limits(settings.service, method, route)


def _write(operation: dict[str, Any], limits: list[tuple[str, Quota]]) -> None:
    if not limits:
        return
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
