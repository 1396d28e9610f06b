"""A FastAPI application with one endpoint; WEB_LIMIT says by whom it is limited, WEB_REDIS where."""

import os

from fastapi import Depends, FastAPI, Request, Response

KIND = os.environ["WEB_LIMIT"]
REDIS = os.environ["WEB_REDIS"]
LIMIT = 1_000_000_000

app = FastAPI(openapi_url=None)


async def empty() -> None:
    """A dependency that does nothing."""


if KIND == "empty":

    @app.get("/search", dependencies=[Depends(empty)])
    async def search() -> dict[str, str]:
        return {"status": "ok"}

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
