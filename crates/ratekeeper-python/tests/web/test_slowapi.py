"""slowapi on our storage: nothing changes but the URI."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from conftest import Backend
from fastapi import FastAPI, Request, Response
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.middleware import SlowAPIMiddleware
from slowapi.util import get_remote_address

import ratekeeper.limits_storage  # noqa: F401 (registers the storages)
from web.conftest import Serve


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window", "sliding-window-counter"])
def test_slowapi(backend: Backend, serve: Serve, strategy: str) -> None:
    uri = "ratekeeper+memory://"
    options: dict[str, Any] = {}
    if backend.server is not None:
        uri, options = f"ratekeeper+{backend.server.url}", {"deadline": 10.0}
    with warnings.catch_warnings():
        # slowapi looks for a file of settings, and warns that there is none.
        warnings.simplefilter("ignore")
        limiter = Limiter(
            get_remote_address, default_limits=["3/minute"], headers_enabled=True, strategy=strategy,
            storage_uri=uri, storage_options=options,
        )
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]
    app.add_middleware(SlowAPIMiddleware)

    def limited(request: Request, response: Response) -> str:
        return "limited"

    # slowapi asks asyncio whether a function is async, which newer Pythons discourage.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        app.get("/limited")(limiter.limit("2/minute")(limited))

    @app.get("/default")
    def default(request: Request) -> str:
        return "default"

    client = serve(app)
    answers = [client.get("/limited") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit"] == "2"
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["1", "0", "0"]
    assert 0 < int(answers[2].headers["retry-after"]) <= 61
    assert [client.get("/default").status for _ in range(4)] == [200, 200, 200, 429]
