"""FastAPI: services without a policy, whose names may be mistyped."""

from __future__ import annotations

import pytest
from fastapi import Depends, FastAPI

from ratekeeper import Policies, PolicyLimiter
from ratekeeper.fastapi import KeyRateLimiter, setup
from web.fastapi_site import lifespan_of


async def test_mistyped_services_keep_an_application_from_starting() -> None:
    policies = Policies(unknown_services="refuse")
    policies.install('service = "api"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "1/m"\n')
    limits = PolicyLimiter(None, policies)
    with pytest.raises(ValueError, match='got service "apii", which has no policy; expected one of "api"'):
        setup(FastAPI(), policies=limits, service="apii")
    app = FastAPI()
    setup(app, policies=limits, service="api")
    app.get("/", dependencies=[Depends(KeyRateLimiter("apii", lambda request: "all"))])(lambda: None)
    with pytest.raises(ValueError, match='got service "apii"'):
        await lifespan_of(app)
