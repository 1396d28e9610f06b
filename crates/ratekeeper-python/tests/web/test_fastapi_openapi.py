"""Limits in FastAPI's document."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request

from ratekeeper import Policies, PolicyLimiter, Quota, Store
from ratekeeper.fastapi import PathRateLimiter, ProjectRateLimiter, RateLimiter, describe, setup
from web.conftest import Serve


async def authenticate(request: Request) -> None: ...


def application() -> FastAPI:
    app = FastAPI()
    setup(app, store=Store.memory())
    return app


def operation(app: FastAPI, path: str, method: str = "get") -> dict[str, Any]:
    found: dict[str, Any] = app.openapi()["paths"][path][method]
    return found


def told(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name == "description" or name.startswith("x-")}


def test_operations_tell_their_limit(serve: Serve) -> None:
    app = application()

    @app.get("/search", dependencies=[Depends(authenticate), Depends(ProjectRateLimiter(max_requests=100, expiry=60))])
    async def search() -> None:
        """Search for items."""

    expected = {
        "description": "Search for items.\n\n**Ratelimit:** 100/60s",
        "x-ratelimit-limit": 100,
        "x-ratelimit-window-seconds": 60,
    }
    assert told(operation(app, "/search")) == expected
    assert "429" in operation(app, "/search")["responses"]
    served = serve(app).get("/openapi.json").json
    assert told(served["paths"]["/search"]["get"]) == expected
    assert app.openapi() is app.openapi()
    assert operation(app, "/search")["description"].count("Ratelimit") == 1, "also the second time"


def test_descriptions_need_not_be_there_and_other_operations_stay() -> None:
    app = application()

    @app.get("/limited", dependencies=[Depends(PathRateLimiter(5))], responses={429: {"description": "our own"}})
    @app.post("/limited")
    async def limited() -> None: ...

    @app.get("/free")
    async def free() -> None: ...

    assert told(operation(app, "/limited")) == {
        "description": "**Ratelimit:** 5/1s", "x-ratelimit-limit": 5, "x-ratelimit-window-seconds": 1
    }
    assert operation(app, "/limited")["responses"]["429"] == {"description": "our own"}
    assert told(operation(app, "/free")) == told(operation(app, "/limited", "post")) == {}
    assert "429" not in operation(app, "/free")["responses"]


def test_limits_of_routers_and_within_dependencies_are_found() -> None:
    app = application()
    limiter = ProjectRateLimiter(10, 60)

    async def authenticated(_: None = Depends(limiter)) -> None: ...

    router = APIRouter(prefix="/v1", dependencies=[Depends(PathRateLimiter(100, 60, "paths"))])

    @router.get("/items/{item:path}", dependencies=[Depends(authenticated)])
    async def items(item: str) -> None:
        """Items."""

    app.include_router(router, prefix="/api")
    found = told(operation(app, "/api/v1/items/{item}"))
    assert found == {
        "description": "Items.\n\n**Ratelimit:** 100/60s (paths), 10/60s (requests)",
        "x-ratelimit-limit": 100,
        "x-ratelimit-window-seconds": 60,
        "x-ratelimit-policies": [
            {"name": "paths", "limit": 100, "window-seconds": 60},
            {"name": "requests", "limit": 10, "window-seconds": 60},
        ],
    }


def test_routes_that_come_later_are_told_too() -> None:
    app = application()
    app.get("/first", dependencies=[Depends(PathRateLimiter(1))])(authenticate)
    assert "x-ratelimit-limit" in operation(app, "/first")
    app.get("/second", dependencies=[Depends(PathRateLimiter(2))])(authenticate)
    app.openapi_schema = None  # Earlier versions of FastAPI have to be told.
    assert operation(app, "/second")["x-ratelimit-limit"] == 2
    assert operation(app, "/first")["description"].count("Ratelimit") == 1


def test_limiters_of_ones_own_and_mounted_applications() -> None:
    class Everybody(RateLimiter):
        def make_key(self, request: Request) -> str | None:
            return "everybody"

    inner = FastAPI()
    describe(inner)

    @inner.get("/", dependencies=[Depends(Everybody(3, 7))])
    async def index() -> None: ...

    application().mount("/inner", inner)
    assert operation(inner, "/")["description"] == "**Ratelimit:** 3/7s"


def test_rules_of_policies_are_told() -> None:
    policies = Policies()
    policies.install(
        """
        service = "api"
        [[rules]]
        name = "everywhere"
        keys = "all"
        quota = "1000/m fixed_window"
        [[rules]]
        name = "search"
        when = "route == '/search'"
        keys = "all"
        quota = "8/m concurrency"
        """
    )
    app = FastAPI()
    setup(app, policies=PolicyLimiter(None, policies), service="api")
    app.get("/search")(authenticate)
    app.get("/other")(authenticate)
    assert told(operation(app, "/other"))["x-ratelimit-limit"] == 1000
    assert operation(app, "/other")["description"] == "**Ratelimit:** 1000/60s"
    assert operation(app, "/search")["description"] == "**Ratelimit:** 1000/60s (everywhere), 8 at once (search)"
    assert operation(app, "/search")["x-ratelimit-policies"] == [
        {"name": "everywhere", "limit": 1000, "window-seconds": 60},
        {"name": "search", "limit": 8, "unit": "concurrent-requests"},
    ]


def test_parts_of_seconds_are_rounded_up() -> None:
    class Quick(PathRateLimiter):
        def __init__(self) -> None:
            super().__init__(1)
            self.quota = Quota("5/1500ms")

    app = application()
    app.get("/", dependencies=[Depends(Quick())])(authenticate)
    assert told(operation(app, "/")) == {
        "description": "**Ratelimit:** 5/1.5s", "x-ratelimit-limit": 5, "x-ratelimit-window-seconds": 2
    }
