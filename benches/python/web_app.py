"""A FastAPI application with one endpoint; WEB_LIMIT says by whom it is limited, WEB_REDIS where."""

import os
from collections.abc import Awaitable

from fastapi import Depends, FastAPI, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KIND = os.environ["WEB_LIMIT"]
REDIS = os.environ["WEB_REDIS"]
LIMIT = 1_000_000_000

app = FastAPI(openapi_url=None)


async def empty() -> None:
    """A dependency that does nothing."""


class TwoFields:
    """The least that a limiter with header fields can do: two that never change."""

    FIELDS = [
        (b"ratelimit-policy", b'"requests";q=1000000000;w=3600'),
        (b"ratelimit", b'"requests";r=999999999;t=3600'),
    ]

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self.app(scope, receive, send)

        def told(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self.FIELDS]
            return send(message)

        return self.app(scope, receive, told)


if KIND in ("empty", "two-fields"):

    @app.get("/search", dependencies=[Depends(empty)])
    async def search() -> dict[str, str]:
        return {"status": "ok"}

    if KIND == "two-fields":
        app.add_middleware(TwoFields)

elif KIND.startswith("ratekeeper"):
    from ratekeeper import Store
    from ratekeeper.fastapi import ProjectRateLimiter, setup

    store = Store.memory() if KIND.endswith("memory") else Store.redis(REDIS, deadline=5.0)
    setup(app, store=store, identify=lambda request: (1, 2))

    @app.get("/search", dependencies=[Depends(ProjectRateLimiter(LIMIT, 3600))])
    async def search() -> dict[str, str]:
        return {"status": "ok"}

else:
    from slowapi import Limiter
    from slowapi.util import get_remote_address

    uri = "memory://" if KIND.endswith("memory") else REDIS
    limiter = Limiter(get_remote_address, headers_enabled=True, storage_uri=uri)
    app.state.limiter = limiter

    @app.get("/search")
    @limiter.limit(f"{LIMIT}/hour")
    async def search(request: Request, response: Response) -> dict[str, str]:
        return {"status": "ok"}
