"""trio, and anyio on it: calls are awaited in its tasks as in those of `asyncio`."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import trio
from conftest import Backend
from fastapi import Depends, FastAPI, Request
from servers import RedisServer

from ratekeeper import Decision, Limiter, Policies, PolicyLimiter, Rule, Store
from ratekeeper._late import taken
from ratekeeper.fastapi import ProjectRateLimiter, setup
from ratekeeper.outgoing import OutgoingLimiter

DEADLINE = 20.0


def limiter_on(backend: Backend, quota: str = "100/1h") -> Limiter:
    return Limiter(backend.store(), Rule("r", quota))


def test_calls_are_awaited_in_tasks(backend: Backend) -> None:
    limiter = limiter_on(backend)
    answers: list[Decision] = []

    async def ask() -> None:
        answers.append(await limiter.acheck("a"))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
        with pytest.raises(TypeError, match="has to be awaited"):
            bool(limiter.apeek("a"))
        awaitable = limiter.apeek("a")
        assert await awaitable == await awaitable
        assert (await limiter.auntil_allowed("b", 5.0)).allowed
        with pytest.raises(ValueError, match="cost"):
            await limiter.acheck("a", cost=-1)

    # Each run has a loop of its own.
    for _ in range(2):
        trio.run(main)
    assert all(answers) and min(answer.verdicts[0].remaining for answer in answers) == 60


def test_anyio_on_trio(redis_backend: Backend) -> None:
    limiter = limiter_on(redis_backend, "1/1h")

    async def main() -> list[bool]:
        return [(await limiter.acheck("a")).allowed for _ in range(2)]

    assert anyio.run(main, backend="trio") == [True, False]
    assert anyio.run(main, backend="asyncio") == [False, False]


def test_other_tasks_run_meanwhile_and_who_is_cancelled_goes_on(redis_backend: Backend) -> None:
    limiter = limiter_on(redis_backend)

    async def main() -> None:
        await limiter.acheck("a")
        redis_backend.client().client_pause(400)
        with trio.move_on_after(0.05) as scope:
            await limiter.acheck("a")
        assert scope.cancelled_caught
        with trio.move_on_after(0.05) as scope:
            await limiter.auntil_allowed("a", 60.0)
        assert scope.cancelled_caught
        assert await limiter.acheck("a")

    trio.run(main)


def test_errors_of_the_store_are_raised() -> None:
    from ratekeeper import StoreError
    from servers import nobody

    async def main(store: Store) -> None:
        with pytest.raises(StoreError):
            await store.aping()

    with nobody() as port:
        trio.run(main, Store.redis(f"redis://127.0.0.1:{port}"))


def test_a_place_that_comes_too_late_is_given_back(own_server: RedisServer) -> None:
    limiter = Limiter(Store.redis(own_server.url, deadline=DEADLINE), Rule("r", "1/10m concurrency"))

    async def main() -> None:
        await limiter.store.aping()
        own_server.pause()
        with trio.move_on_after(0.2) as scope:
            await taken(limiter.acheck("a"), limiter.arefund)
        assert scope.cancelled_caught
        own_server.resume()
        with trio.fail_after(DEADLINE):
            while not (await limiter.apeek("a")).allowed:
                await trio.sleep(0.01)

    trio.run(main)


def test_without_a_loop_it_says_so(redis_backend: Backend) -> None:
    limiter = limiter_on(redis_backend)
    with pytest.raises(RuntimeError, match="^no running event loop: got none of asyncio or trio in this thread; expected one"):
        limiter.acheck("a")
    trio.run(trio.sleep, 0)
    with pytest.raises(RuntimeError, match="^no running event loop"):
        limiter.acheck("a")


POLICY = """
service = "door"
[[rules]]
name = "d"
keys = "{body.who}"
quota = "2/m"
"""


def test_fastapi_on_trio(redis_backend: Backend) -> None:
    policies = Policies()
    policies.install(POLICY)
    app = FastAPI()
    store = redis_backend.store()
    setup(app, store=store, identify=lambda request: (1, 2), policies=PolicyLimiter(store, policies), service="door", body_wait=0.1)

    @app.post("/x", dependencies=[Depends(ProjectRateLimiter(5, 60))])
    async def x(request: Request) -> Any:
        return await request.json()

    async def answered(*parts: bytes) -> int:
        said = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        sent: list[Any] = []

        async def receive() -> Any:
            if said:
                return said.pop(0)
            # The end of the body comes when nobody looks into it any more.
            await trio.sleep(0.3)
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        fields = [(b"content-type", b"application/json")]
        scope = {
            "type": "http", "method": "POST", "path": "/x", "raw_path": b"/x", "query_string": b"", "headers": fields,
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http", "root_path": "", "http_version": "1.1",
        }
        await app(scope, receive, send)
        return int(sent[0]["status"])

    assert trio.run(answered, b'{"who": ', b'"ann"}') == 200


def test_outgoing_calls_on_trio() -> None:
    limiter = OutgoingLimiter(None, {"api": "1/1h"})
    limiter.observe("slow", 429, {"retry-after": "1"})

    async def main() -> None:
        async with limiter.slot("api") as slot:
            assert slot.decision is not None
        async with limiter.slot("slow"):
            assert limiter.paused("slow") == 0

    trio.run(main)
