"""Requests that are cancelled while their places of concurrency are on the way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

import anyio
import pytest
from django.test import AsyncClient, override_settings
from fastapi import Depends, FastAPI, Request
from servers import RedisServer

from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import KeyRateLimiter, ProjectRateLimiter, RateLimiter, setup
from web import django_site  # noqa: F401 (configures Django)
from web.fastapi_site import messages_of

DEADLINE = 20.0
POLICY = """
service = "s"
[[rules]]
name = "at-once"
caller_key = true
quota = "1/10m concurrency"
"""


class Everybody(RateLimiter):
    def make_key(self, request: Request) -> str | None:
        return "everybody"


def limiters(store: Store) -> PolicyLimiter:
    policies = Policies()
    policies.install(POLICY)
    policies.install(POLICY.replace('"s"', '"door"').replace("caller_key = true", 'keys = "all"'))
    return PolicyLimiter(store, policies)


def application(kind: str, store: Store) -> FastAPI:
    """One at once, for ten minutes."""
    app = FastAPI()
    service = "door" if kind == "door" else None
    setup(app, store=store, identify=lambda request: (1, 2), policies=limiters(store), service=service)
    dependency = {
        "project": ProjectRateLimiter(1, 600, algorithm="concurrency"),
        "own key": Everybody(1, 600, algorithm="concurrency"),
        "policy": KeyRateLimiter("s", lambda request: "all"),
    }.get(kind)
    app.get("/", dependencies=[Depends(dependency)] if dependency else [])(lambda: None)
    return app


@pytest.fixture
def far_store(own_server: RedisServer) -> Store:
    """A store on a server that may be stopped."""
    store = Store.redis(own_server.url, deadline=DEADLINE)
    store.ping()
    return store


async def cancelled_on_its_way(asked: Awaitable[Any], server: RedisServer) -> None:
    """Cancels a request whose check has been sent to a server that has not answered."""
    server.pause()
    task = asyncio.ensure_future(asked)
    # It cannot have an answer; what it has sent lies with the server.
    await asyncio.sleep(0.2)
    assert not task.done()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    server.resume()


async def eventually(condition: Any) -> None:
    """Waits until a condition holds."""
    end = asyncio.get_running_loop().time() + DEADLINE
    while not await condition():
        assert asyncio.get_running_loop().time() < end, "the place was not given back"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", ["project", "own key", "policy", "door"])
async def test_a_place_that_nobody_waits_for_is_given_back(
    own_server: RedisServer, far_store: Store, kind: str
) -> None:
    app = application(kind, far_store)

    async def passes() -> bool:
        return bool((await messages_of(app, "/"))[0]["status"] == 200)

    assert await passes()
    for _ in range(2):
        await cancelled_on_its_way(messages_of(app, "/"), own_server)
        await eventually(passes)


async def test_django_gives_it_back_as_well(own_server: RedisServer, far_store: Store) -> None:
    with override_settings(RATELIMIT_STORES={"default": far_store}):

        async def status() -> int:
            return (await AsyncClient().get("/aheld", headers={"x-project": "1:2"})).status_code

        async def passes() -> bool:
            return await status() == 200

        assert await passes()
        for _ in range(2):
            await cancelled_on_its_way(status(), own_server)
            await eventually(passes)


async def test_all_places_are_given_back_within_a_cancelled_scope(far_store: Store) -> None:
    app = FastAPI()
    setup(app, store=far_store, identify=lambda request: (1, 2))
    names = ["first", "second", "third"]
    dependencies = [Depends(ProjectRateLimiter(1, 600, name, algorithm="concurrency")) for name in names]
    inside = asyncio.Event()

    @app.get("/", dependencies=dependencies)
    async def index(stay: bool = False) -> None:
        inside.set()
        await asyncio.sleep(DEADLINE if stay else 0)

    async def stay() -> None:
        await messages_of(app, "/", query=b"stay=1")

    # There every `await` raises, from the cancellation on.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stay)
        await inside.wait()
        tasks.cancel_scope.cancel()

    async def passes() -> bool:
        return bool((await messages_of(app, "/"))[0]["status"] == 200)

    await eventually(passes)
