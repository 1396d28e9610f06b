"""The name of the endpoint, however routes are put together; on every version of FastAPI that is supported."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Backend
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.applications import Starlette
from starlette.routing import Mount

from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import ProjectRateLimiter, endpoint_of, setup
from web.conftest import Serve


async def authenticate(request: Request) -> None:
    request.state.organization_id, request.state.project_id = 1, 2


LIMIT = [Depends(authenticate), Depends(ProjectRateLimiter(5, 60))]


async def name_of(request: Request) -> str:
    return endpoint_of(request.scope)


def routes_of(target: Any, path: str) -> None:
    target.add_api_route(path, name_of, dependencies=LIMIT)


def direct(app: FastAPI) -> None:
    routes_of(app, "/datasets/{dataset_id}/search")


def converted(app: FastAPI) -> None:
    routes_of(app, "/files/{path:path}")


def router_with_prefix(app: FastAPI) -> None:
    router = APIRouter(prefix="/v1")
    routes_of(router, "/items/{item}")
    app.include_router(router)


def included_with_prefix(app: FastAPI) -> None:
    router = APIRouter(prefix="/v1")
    routes_of(router, "/items/{item}")
    app.include_router(router, prefix="/api/{tenant}")


def included_twice(app: FastAPI) -> None:
    router = APIRouter()
    routes_of(router, "/items/{item}")
    app.include_router(router, prefix="/old")
    app.include_router(router, prefix="/new")


def routers_within_routers(app: FastAPI) -> None:
    inner, outer = APIRouter(prefix="/inner"), APIRouter(prefix="/outer")
    routes_of(inner, "/items/{item}")
    outer.include_router(inner, prefix="/between")
    app.include_router(outer, prefix="/api")


def mounted(app: FastAPI) -> None:
    inner = FastAPI()
    routes_of(inner, "/items/{item}")
    app.mount("/mounted", inner)


def mounted_with_parameters(app: FastAPI) -> None:
    inner = FastAPI()
    router = APIRouter(prefix="/v1")
    routes_of(router, "/items/{item}")
    inner.include_router(router, prefix="/api")
    app.mount("/tenants/{tenant}", inner)


def mounted_within_mounted(app: FastAPI) -> None:
    inner = FastAPI()
    routes_of(inner, "/items/{item}")
    app.mount("/first", Starlette(routes=[Mount("/{second}", inner)]))


def mounted_in_a_router(app: FastAPI) -> None:
    inner = FastAPI()
    routes_of(inner, "/items/{item}")
    # Earlier versions of FastAPI leave mounts of routers out, so the application has the mount there.
    router = APIRouter(prefix="/router")
    routes_of(router, "/own")
    app.include_router(router)
    app.mount("/router/mounted", inner)


CASES = [
    (direct, "/datasets/7/search", "/datasets/{dataset_id}/search"),
    (converted, "/files/a/b/c", "/files/{path:path}"),
    (router_with_prefix, "/v1/items/7", "/v1/items/{item}"),
    (included_with_prefix, "/api/acme/v1/items/7", "/api/{tenant}/v1/items/{item}"),
    (included_twice, "/old/items/7", "/old/items/{item}"),
    (included_twice, "/new/items/7", "/new/items/{item}"),
    (routers_within_routers, "/api/outer/between/inner/items/7", "/api/outer/between/inner/items/{item}"),
    (mounted, "/mounted/items/7", "/mounted/items/{item}"),
    (mounted_with_parameters, "/tenants/acme/api/v1/items/7", "/tenants/{tenant}/api/v1/items/{item}"),
    (mounted_within_mounted, "/first/x/items/7", "/first/{second}/items/{item}"),
    (mounted_in_a_router, "/router/mounted/items/7", "/router/mounted/items/{item}"),
    (mounted_in_a_router, "/router/own", "/router/own"),
]


@pytest.mark.parametrize(("build", "path", "endpoint"), CASES)
@pytest.mark.parametrize("root_path", ["", "/behind/a/proxy"])
def test_the_endpoint_is_the_template(
    redis_backend: Backend, serve: Serve, build: Any, path: str, endpoint: str, root_path: str
) -> None:
    app = FastAPI()
    setup(app, store=redis_backend.store())
    build(app)
    answer = serve(app, root_path=root_path).get(path)
    assert (answer.status, answer.json) == (200, endpoint)
    assert redis_backend.client().keys("ratelimit:*") == [f"ratelimit:{endpoint}:1:2"]


@pytest.mark.parametrize(("build", "path", "endpoint"), CASES)
def test_policies_see_the_same_route_before_it_is_routed(serve: Serve, build: Any, path: str, endpoint: str) -> None:
    policies = Policies()
    policies.install(
        f"""
        service = "api"
        [[rules]]
        name = "route"
        when = '''route == "{endpoint}"'''
        keys = "{{route}}"
        quota = "1/m"
        """
    )
    app = FastAPI()
    setup(app, store=Store.memory(), policies=PolicyLimiter(Store.memory(), policies), service="api")
    build(app)
    client = serve(app)
    assert [client.get(path).status for _ in range(2)] == [200, 429]
    assert client.get("/nowhere").status == 404


def test_mounts_that_nobody_can_see_are_bounded(redis_backend: Backend, serve: Serve) -> None:
    inner = FastAPI()
    routes_of(inner, "/items/{item}")

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        """An application of another kind, which passes on whatever is below its first part."""
        at = scope["path"].index("/items")
        scope = {**scope, "root_path": scope["path"][:at], "app_root_path": ""}
        await inner(scope, receive, send)

    app = FastAPI()
    setup(app, store=redis_backend.store())
    app.mount("/mounted", outer)
    client = serve(app)
    assert client.get("/mounted/seen/items/7").json == "/mounted/seen/items/{item}"
    long = client.get(f"/mounted/{'x' * 3000}/items/7")
    assert (long.status, long.json.startswith("sha256:"), long.json.endswith("/items/{item}")) == (200, True, True)


def test_requests_that_no_route_takes_have_their_path(serve: Serve) -> None:
    app = FastAPI()

    @app.exception_handler(404)
    async def lost(request: Request, error: Exception) -> Any:
        from starlette.responses import PlainTextResponse

        return PlainTextResponse(endpoint_of(request.scope), 404)

    assert serve(app).get("/lost").body == b"/lost"
