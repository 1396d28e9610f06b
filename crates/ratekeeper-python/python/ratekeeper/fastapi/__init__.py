"""Limits in FastAPI: as dependencies, from within handlers, and by policies at the door.

    from fastapi import Depends, FastAPI
    from ratekeeper import Store
    from ratekeeper.fastapi import ProjectRateLimiter, setup

    app = FastAPI()
    setup(app, store=Store.redis("redis://127.0.0.1:6379"))

    @app.get("/search", dependencies=[Depends(authenticate), Depends(ProjectRateLimiter(100, 60))])
    async def search(): ...
"""

from __future__ import annotations

from fastapi import FastAPI

from .._modes import ModeSource, RateLimitMode, get_rate_limit_mode, is_rate_limit_disabled
from .._native import HttpOptions, PolicyLimiter, Store
from .._result import RateLimitResult
from .._web import DETAIL, OnOutage, check_kind
from ..keys import (
    make_org_override_key,
    make_override_key,
    make_path_rate_limit_key,
    make_rate_limit_key,
)
from ..overrides import (
    RateLimitOverride,
    clear_org_rate_limit_overrides,
    clear_project_rate_limit_overrides,
    delete_org_rate_limit_override,
    delete_rate_limit_override,
    get_org_rate_limit_override,
    get_rate_limit_override,
    list_org_rate_limit_overrides,
    list_rate_limit_overrides,
    set_org_rate_limit_override,
    set_rate_limit_override,
)
from ._apply import KeyRateLimiter, apply_element_rate_limit, apply_rate_limit
from ._endpoint import endpoint_of
from ._limiter import RateLimiter
from ._limiters import IpRateLimiter, PathRateLimiter, ProjectRateLimiter
from ._middleware import RateLimitMiddleware
from ._openapi import describe
from ._request import RateLimitExceeded, WebSocketRateLimitExceeded, problem
from ._settings import Claims, Identify, Project, Settings, project_of_state

__all__ = [
    "IpRateLimiter",
    "KeyRateLimiter",
    "PathRateLimiter",
    "Project",
    "ProjectRateLimiter",
    "RateLimitExceeded",
    "RateLimitMiddleware",
    "RateLimitMode",
    "RateLimitOverride",
    "RateLimitResult",
    "RateLimiter",
    "Settings",
    "WebSocketRateLimitExceeded",
    "apply_element_rate_limit",
    "apply_rate_limit",
    "clear_org_rate_limit_overrides",
    "clear_project_rate_limit_overrides",
    "delete_org_rate_limit_override",
    "delete_rate_limit_override",
    "describe",
    "endpoint_of",
    "get_org_rate_limit_override",
    "get_rate_limit_mode",
    "get_rate_limit_override",
    "is_rate_limit_disabled",
    "list_org_rate_limit_overrides",
    "list_rate_limit_overrides",
    "make_org_override_key",
    "make_override_key",
    "make_path_rate_limit_key",
    "make_rate_limit_key",
    "project_of_state",
    "set_org_rate_limit_override",
    "set_rate_limit_override",
    "setup",
]


def setup(
    app: FastAPI,
    *,
    store: Store | None = None,
    policies: PolicyLimiter | None = None,
    service: str | None = None,
    identify: Identify = project_of_state,
    claims: Claims | None = None,
    mode: ModeSource = None,
    on_outage: OnOutage = "allow",
    options: HttpOptions = DETAIL,
    body_bytes_max: int = 256 * 1024,
    body_wait: float = 5,
) -> None:
    """Gives an application what its limiters need, and its responses and document what limits have to tell.

    `store`: where limiters count that have no store of their own. `service`: the rules of this
    service in `policies` apply to every request. `identify`: the organisation and project of a
    request, None if it is nobody's. `claims`: what policies see as `identity` (default: `org` and
    `project` of `identify`). `mode`: what RATE_LIMIT_MODE would say; a function is asked
    with every request. `options`: header fields and body, legacy ones included. Bodies are looked into, where
    a policy needs it, up to `body_bytes_max` bytes that are there within `body_wait` seconds.

    Applications that are mounted in this one need none of it.
    """
    settings = Settings(
        store, policies, service, identify, claims, mode, on_outage, options, body_bytes_max, body_wait
    )
    check_kind("app", app, FastAPI)
    RateLimitMiddleware(app, settings)  # Tells what is wrong now, not with the first request.
    app.add_middleware(RateLimitMiddleware, settings=settings)
    if options.content_type != DETAIL.content_type:
        app.add_exception_handler(RateLimitExceeded, problem)
    describe(app, settings)
