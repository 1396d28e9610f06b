"""`application_kit.fastapi.fastapi`: an application that knows limits."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from ... import fastapi as _ours
from .._connections import is_known, store_named
from ._legacy import LegacyRateLimitHeaderMiddleware
from ._limits import project_of_request

__all__ = ["get_fastapi_app"]


def get_fastapi_app(name: str, *, use_x_ratelimit_prefix: bool = False, **options: Any) -> FastAPI:
    """An application whose limiters are set up, with legacy fields, and limits in its OpenAPI document.

    `options` are those of `FastAPI`. What else Application Kit's function does for an application is not done here: keep
    that one where you need it, and call `ratekeeper.fastapi.setup` on what it returns.
    """
    app = FastAPI(**{"title": name, **options})
    _ours.setup(app, store=store_named() if is_known("ratelimit") else None, identify=project_of_request)
    # Around the other one, whose fields it reads.
    app.add_middleware(LegacyRateLimitHeaderMiddleware, use_x_ratelimit_prefix=use_x_ratelimit_prefix)
    return app
