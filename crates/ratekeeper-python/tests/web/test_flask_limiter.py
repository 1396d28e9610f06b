"""Flask-Limiter on our storage: nothing changes but the URI."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import DEADLINE, Backend
from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

import ratekeeper.limits_storage  # noqa: F401 (registers the storages)


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window", "sliding-window-counter"])
def test_flask_limiter(backend: Backend, strategy: str) -> None:
    uri, options = "ratekeeper+memory://", {}
    if backend.server is not None:
        uri, options = f"ratekeeper+{backend.server.url}", {"deadline": DEADLINE}
    app = Flask("site")
    limiter = Limiter(
        get_remote_address, app=app, default_limits=["3/minute"], headers_enabled=True, strategy=strategy,
        storage_uri=uri, storage_options=options,  # type: ignore[arg-type]
    )

    @app.get("/limited")
    @limiter.limit("2/minute;10/hour")
    def limited() -> str:
        return "limited"

    @app.get("/default")
    def default() -> str:
        return "default"

    @app.get("/exempt")
    @limiter.exempt  # type: ignore[untyped-decorator, unused-ignore]
    def exempt() -> str:
        return "exempt"

    client = app.test_client()
    answers: list[Any] = [client.get("/limited") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["X-RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]
    assert 0 < int(answers[2].headers["Retry-After"]) <= 61
    assert [client.get("/default").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert {client.get("/exempt").status_code for _ in range(5)} == {200}
