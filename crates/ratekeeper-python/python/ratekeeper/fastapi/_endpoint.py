"""Which endpoint a request is for: the template of its route, with what it is mounted under.

`/datasets/{dataset_id}/search`, never `/datasets/7/search`: names of endpoints are
part of keys, and of as many as there are routes.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from fastapi import routing as fastapi_routing
from starlette.routing import BaseRoute, Match, Mount

from ..keys import bounded

Scope = MutableMapping[str, Any]

# Mounts within mounts; what is deeper is not looked into.
_MOUNTS_MAX = 16
# Where a path has to stand in for a template; longer ones are hashed.
_PATH_BYTES_MAX = 512


def path_within(scope: Scope) -> str:
    """The path within the application that the server serves; where that is mounted is no part of it."""
    path: str = scope["path"]
    # Of an application in another one, the outer one's: two of its parts may look the same.
    root: str = scope.get("app_root_path", scope.get("root_path", ""))
    # As Starlette does it: a root that the path does not begin with was taken off by a proxy.
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path


def endpoint_of(scope: Scope) -> str:
    """The endpoint of a request that has been routed; its path if no route was noted."""
    template = _route_template(scope)
    return bounded(scope["path"], _PATH_BYTES_MAX) if template is None else mounted_under(scope) + template


def endpoint_of_route(scope: Scope) -> str:
    """The same without what the application that answers is mounted under, which is how Application Kit has it."""
    return _route_template(scope) or bounded(scope["path"], _PATH_BYTES_MAX)


def _route_template(scope: Scope) -> str | None:
    route = scope.get("route")
    template = getattr(_included(scope, route) or route, "path", None)
    return template if isinstance(template, str) else None


def _included(scope: Scope, route: object) -> object | None:
    # Newer versions of FastAPI note the route as it was written in its router; how it was included stands here.
    # What is noted may be from further out: a router around a mounted application.
    context = (scope.get("fastapi") or {}).get("effective_route_context")
    return context if getattr(context, "original_route", None) is route else None


def mounted_under(scope: Scope) -> str:
    """The template of the mounts around the application that answers."""
    if "app_root_path" not in scope:
        return ""
    outer, path = scope["app_root_path"], scope.get("root_path", "")
    if not path.startswith(outer):
        return ""
    mounted = path[len(outer) :]
    routes = getattr(scope.get("router"), "routes", ())
    # An application of another kind in between hides its mounts: then the path says it.
    return _template(routes, mounted, _MOUNTS_MAX) or bounded(mounted, _PATH_BYTES_MAX)


def _template(routes: Sequence[BaseRoute], mounted: str, depth: int) -> str | None:
    if not mounted:
        return ""
    for route in each_route(routes) if depth else ():
        if not isinstance(route, Mount):
            continue
        match = route.path_regex.match(f"{mounted}/")
        if match is None:
            continue
        rest = match.group("path").rstrip("/")
        inner = _template(route.routes, f"/{rest}" if rest else "", depth - 1)
        if inner is not None:
            return route.path + inner
    return None


def each_route(routes: Sequence[BaseRoute]) -> Iterator[Any]:
    """All routes, also of included routers, with the paths under which they are reached."""
    contexts = getattr(fastapi_routing, "iter_route_contexts", None)
    if contexts is None:
        yield from routes
        return
    for context in contexts(routes):
        # A mount stays a mount; what a router's prefix changes is in the context.
        included = getattr(context, "_route_context", None)
        yield getattr(included, "starlette_route", None) or included or context.route


def find_endpoint(routes: Sequence[BaseRoute], scope: Scope, depth: int = _MOUNTS_MAX) -> str | None:
    """The endpoint of a request that has not been routed yet; None if no route takes it."""
    for route in each_route(routes) if depth else ():
        match, child = route.matches(scope)
        if match is not Match.FULL:
            continue
        template = str(getattr(route, "path", ""))
        if not isinstance(route, Mount):
            return template
        inner = find_endpoint(route.routes, {**scope, **child}, depth - 1)
        return None if inner is None else template + inner
    return None
