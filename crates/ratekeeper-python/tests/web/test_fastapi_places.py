"""Places of concurrency in FastAPI: held while a response is under way, by whatever limiter."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
from collections.abc import AsyncIterator

import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from servers import wait_for

from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import KeyRateLimiter, PathRateLimiter, ProjectRateLimiter, RateLimiter, setup
from web.conftest import Serve
from web.fastapi_site import application, messages_of, request_of
from web.web_servers import TIMEOUT

POLICY = """
service = "s"
[[rules]]
name = "at-once"
caller_key = true
quota = "1/m concurrency"
"""


class Everybody(RateLimiter):
    def make_key(self, request: Request) -> str | None:
        return "everybody"


def keyed(store: Store) -> KeyRateLimiter:
    policies = Policies()
    policies.install(POLICY)
    return KeyRateLimiter("s", lambda request: "all", policies=PolicyLimiter(store, policies))


LIMITERS = {
    "project": lambda store: ProjectRateLimiter(1, 60, algorithm="concurrency"),
    "own key": lambda store: Everybody(1, 60, algorithm="concurrency"),
    "path": lambda store: PathRateLimiter(1, 60, algorithm="concurrency"),
    "policy": keyed,
}


@pytest.fixture(params=[*LIMITERS, "door"])
def app(request: pytest.FixtureRequest, store: Store) -> FastAPI:
    """An application with a limit of one at once on everything."""
    if request.param == "door":
        policies = Policies()
        policies.install(POLICY.replace("caller_key = true", 'keys = "all"'))
        return application(store, policies=PolicyLimiter(store, policies), service="s")
    app = application(store)
    app.router.dependencies.append(Depends(LIMITERS[request.param](store)))
    return app




def test_a_place_is_held_until_the_response_is_sent(app: FastAPI, serve: Serve) -> None:
    go_on = threading.Event()

    @app.get("/one")
    async def one(parts: bool = False) -> Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.to_thread(go_on.wait, TIMEOUT)
            yield b"last"

        return StreamingResponse(chunks()) if parts else Response()

    client = serve(app)

    def passes() -> bool:
        return client.get("/one", x_project="1:2").status == 200

    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=TIMEOUT)) as connection:
        connection.request("GET", "/one?parts=1", headers={"x-project": "1:2"})
        response = connection.getresponse()
        assert response.read(5) == b"first"
        assert not passes()
        go_on.set()
        assert response.read() == b"last"
    # It is given back after the last part is sent, so the next request may come too soon.
    for _ in range(3):
        wait_for(passes)


def test_background_tasks_hold_nothing(app: FastAPI, serve: Serve) -> None:
    go_on = threading.Event()

    @app.get("/one")
    async def one(tasks: BackgroundTasks) -> None:
        tasks.add_task(asyncio.to_thread, go_on.wait, TIMEOUT)

    client = serve(app)
    try:
        for _ in range(3):
            wait_for(lambda: client.get("/one", x_project="1:2").status == 200, 5)
    finally:
        go_on.set()


def test_places_are_given_back_whatever_becomes_of_the_request(app: FastAPI, serve: Serve) -> None:
    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("broken")

    @app.get("/refused")
    async def refused() -> None:
        raise HTTPException(409)

    client = serve(app)
    for path, status in [("/broken", 500), ("/refused", 409)] * 2:
        wait_for(lambda: client.get(path, x_project="1:2").status == status, 5)


async def test_a_denied_request_holds_nothing() -> None:
    app = FastAPI()
    setup(app, store=Store.memory(), identify=lambda request: (1, 2))
    limiters = [ProjectRateLimiter(1, 60, "at-once", algorithm="concurrency"), PathRateLimiter(1, 60)]

    @app.get("/", dependencies=[Depends(limiter) for limiter in limiters])
    async def index() -> None: ...

    starts = [(await messages_of(app, "/"))[0] for _ in range(3)]
    assert [start["status"] for start in starts] == [200, 429, 429]
    for start in starts[1:]:
        assert b'"requests";r=0' in dict(start["headers"])[b"ratelimit"]
        assert b'"at-once";r=0' in dict(start["headers"])[b"ratelimit"], "it had the place, and gives it back"


async def test_nobody_to_give_places_back_is_told() -> None:
    request = request_of({"state": {"organization_id": 1, "project_id": 2}})
    store = Store.memory()
    limiters = [
        ProjectRateLimiter(1, 60, algorithm="concurrency", store=store),
        Everybody(1, 60, algorithm="concurrency", store=store),
        keyed(store),
    ]
    for limiter in limiters:
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"places back: call ratekeeper\.fastapi\.setup\(app\)"):
                await limiter(request, Response())
