"""FastAPI: limits of WebSockets, whose opening is counted."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, WebSocket

from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import KeyRateLimiter, PathRateLimiter, ProjectRateLimiter, WebSocketRateLimitExceeded, setup

ANSWERS = {"websocket.http.response": {}}
GREETED = ["websocket.accept", "websocket.send", "websocket.close"]


def policies() -> PolicyLimiter:
    policies = Policies()
    policies.install('service = "s"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "2/m"\n')
    policies.install('service = "door"\n[[rules]]\nname = "d"\nkeys = "{path}"\nquota = "2/m"\n')
    return PolicyLimiter(None, policies)


def greeting(limiter: Any = None, **options: Any) -> FastAPI:
    app = FastAPI(dependencies=[] if limiter is None else [Depends(limiter)])
    setup(app, store=Store.memory(), **{"identify": lambda request: (1, 2), **options})

    @app.websocket("/ws")
    async def greet(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    return app


async def opened(app: FastAPI, extensions: Any = None, *texts: str) -> list[Any]:
    sent: list[Any] = []
    said = [{"type": "websocket.connect"}, *({"type": "websocket.receive", "text": text} for text in texts)]

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return said.pop(0) if said else {"type": "websocket.disconnect", "code": 1000}

    await app({"type": "websocket", "path": "/ws", "headers": [], "query_string": b"", "extensions": extensions}, receive, send)
    return sent


LIMITERS = [ProjectRateLimiter(2, 60), PathRateLimiter(2, 60), KeyRateLimiter("s", lambda request: "all", policies=policies())]


@pytest.mark.parametrize("limiter", LIMITERS, ids=lambda limiter: type(limiter).__name__)
async def test_limiters_count_openings(limiter: Any) -> None:
    app = greeting(limiter)
    for _ in range(2):
        sent = await opened(app)
        assert [message["type"] for message in sent] == GREETED
        assert b"ratelimit" in dict(sent[0]["headers"])
    (denied,) = await opened(app)
    assert (denied["type"], denied["code"]) == ("websocket.close", 1013)
    assert denied["reason"] == "Rate limit exceeded. Try again later."


async def test_servers_that_can_answer_with_429() -> None:
    app = greeting(PathRateLimiter(1, 60))
    await opened(app, ANSWERS)
    start, body = await opened(app, ANSWERS)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    fields = dict(start["headers"])
    assert 0 < int(fields[b"retry-after"]) <= 60
    assert fields[b"ratelimit"].startswith(b'"requests";r=0')
    assert body["type"] == "websocket.http.response.body" and b"Rate limit exceeded" in body["body"]


@pytest.mark.parametrize("extensions", [None, ANSWERS])
async def test_rules_at_the_door_count_openings(extensions: Any) -> None:
    app = greeting(policies=policies(), service="door")
    for _ in range(2):
        assert [message["type"] for message in await opened(app, extensions)] == GREETED
    denied = await opened(app, extensions)
    if extensions is None:
        assert denied == [{"type": "websocket.close", "code": 1013}]
    else:
        assert denied[0]["status"] == 429


async def test_who_may_not_come_in_is_closed_at_the_door() -> None:
    def identify(request: Any) -> Any:
        raise HTTPException(401, "who are you")

    installed = Policies()
    installed.install('service = "door"\n[[rules]]\nname = "d"\nkeys = "{identity.org}"\nquota = "2/m"\n')
    app = greeting(policies=PolicyLimiter(None, installed), service="door", identify=identify)
    assert await opened(app) == [{"type": "websocket.close", "code": 1008, "reason": "who are you"}]


async def test_a_place_is_held_while_a_websocket_is_open() -> None:
    app, inside = FastAPI(), []
    setup(app, store=Store.memory())

    @app.websocket("/ws", dependencies=[Depends(PathRateLimiter(1, 60, algorithm="concurrency"))])
    async def greet(socket: WebSocket) -> None:
        await socket.accept()
        if not inside:
            inside.append(await opened(app))

    for _ in range(2):
        assert [message["type"] for message in await opened(app)] == ["websocket.accept"]
    (denied,) = inside[0]
    assert denied["code"] == 1013


async def test_modes_hold_for_websockets() -> None:
    for mode in ("monitor", "off"):
        app = greeting(PathRateLimiter(1, 60), mode=mode)
        for _ in range(3):
            assert [message["type"] for message in await opened(app)] == GREETED


async def test_handlers_can_answer_denials_themselves() -> None:
    app = greeting(PathRateLimiter(1, 60))

    @app.exception_handler(WebSocketRateLimitExceeded)
    async def denied(socket: WebSocket, error: WebSocketRateLimitExceeded) -> None:
        await socket.close(4029, f"{error.result.max_requests} a minute")

    await opened(app)
    assert await opened(app) == [{"type": "websocket.close", "code": 4029, "reason": "1 a minute"}]


def echoing(messages: Any, answers: bool = False, **options: Any) -> FastAPI:
    """An application whose messages are limited, each on its own."""
    app = FastAPI()
    setup(app, store=Store.memory(), **{"identify": lambda request: (1, 2), **options})

    @app.websocket("/ws")
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            try:
                await messages.hit(socket)
            except WebSocketRateLimitExceeded as error:
                if not answers:
                    raise
                await socket.send_text(f"again in {error.result.ttl} s")
            else:
                await socket.send_text(text)

    return app


@pytest.mark.parametrize("limiter", [ProjectRateLimiter(2, 60), PathRateLimiter(2, 60), PathRateLimiter("2/m;9/h")])
async def test_messages_are_limited(limiter: Any) -> None:
    app = echoing(limiter)
    sent = await opened(app, None, "a", "b", "c", "d")
    assert [message.get("text") for message in sent[1:3]] == ["a", "b"]
    assert sent[3:] == [{"type": "websocket.close", "code": 1013, "reason": "Rate limit exceeded. Try again later."}]


async def test_a_handler_can_answer_messages_that_are_too_many() -> None:
    sent = await opened(echoing(PathRateLimiter(1, 60), answers=True), None, "a", "b", "c")
    assert [message.get("text") for message in sent[1:]] == ["a", "again in 60 s", "again in 60 s"]


async def test_messages_of_two_sockets_count_together_and_monitor_mode_lets_all_pass() -> None:
    app = echoing(ProjectRateLimiter(1, 60), answers=True)
    assert [(await opened(app, None, "a"))[1]["text"] for _ in range(2)] == ["a", "again in 60 s"]
    sent = await opened(echoing(PathRateLimiter(1, 60), mode="monitor"), None, "a", "b")
    assert [message.get("text") for message in sent[1:]] == ["a", "b"]
