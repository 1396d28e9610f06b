"""A FastAPI application with limits, as tests want it."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI, Request

from ratekeeper import Store
from ratekeeper.fastapi import setup

DETAIL = {"detail": "Rate limit exceeded. Try again later."}


async def authenticate(request: Request) -> None:
    """Somebody's authentication: the project stands in a field."""
    who = request.headers.get("x-project")
    if who is not None:
        request.state.organization_id, request.state.project_id = map(int, who.split(":"))


def application(store: Store | None, **options: Any) -> FastAPI:
    """An application that knows who is calling."""
    app = FastAPI(dependencies=[Depends(authenticate)])
    setup(app, store=store, **options)
    return app


def limited(*limiters: Any, store: Store | None = None, **options: Any) -> FastAPI:
    """An application whose /search has these limiters."""
    app = application(store, **options)

    @app.get("/search", dependencies=[Depends(limiter) for limiter in limiters])
    async def search() -> dict[str, str]:
        return {"status": "ok"}

    return app


def request_of(scope: dict[str, Any]) -> Request:
    """A request that no server has seen."""
    return Request({"type": "http", "method": "GET", "path": "/x", "headers": [], **scope})


async def messages_of(app: FastAPI, path: str, kind: str = "http", query: bytes = b"") -> list[Any]:
    """What an application sends for a request without a server, or for the opening of a WebSocket."""
    opening = {"http": {"type": "http.request", "body": b""}, "websocket": {"type": "websocket.connect"}}[kind]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return opening

    scope = {"type": kind, "method": "GET", "path": path, "headers": [], "query_string": query}
    await app(scope, receive, send)
    return sent


async def lifespan_of(app: FastAPI) -> list[Any]:
    """What an application sends when a server starts it and ends it."""
    events = iter(["lifespan.startup", "lifespan.shutdown"])
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": next(events)}

    await app({"type": "lifespan", "state": {}}, receive, send)
    return sent
