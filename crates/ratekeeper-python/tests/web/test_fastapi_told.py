"""What clients of FastAPI are told about limits."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from ratekeeper import HttpOptions, Store
from ratekeeper.fastapi import PathRateLimiter, ProjectRateLimiter, RateLimitExceeded
from web.conftest import Serve
from web.fastapi_site import DETAIL, application, limited


def test_a_denial_carries_the_fields_of_all_limiters_before_it(store: Store, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(5, 60), PathRateLimiter(1, 30, policy_name="path"), store=store))
    assert client.get("/search", x_project="1:2").status == 200
    denied = client.get("/search", x_project="1:2")
    assert (denied.status, denied.json) == (429, DETAIL)
    assert denied.headers["ratelimit-policy"] == '"requests";q=5;w=60, "path";q=1;w=30'
    assert re.fullmatch(r'"requests";r=3;t=\d+, "path";r=0;t=\d+', denied.headers["ratelimit"])


def test_every_response_tells_whoever_made_it(serve: Serve) -> None:
    app = application(Store.memory())
    limiter = [Depends(PathRateLimiter(9, 60))]

    @app.get("/plain", dependencies=limiter)
    async def plain() -> Response:
        return PlainTextResponse("made by hand")

    @app.get("/stream", dependencies=limiter)
    async def stream() -> Response:
        return StreamingResponse(iter([b"a", b"b"]))

    @app.get("/missing", dependencies=limiter)
    async def missing() -> None:
        raise HTTPException(404, headers={"x-own": "kept"})

    @app.get("/invalid", dependencies=limiter)
    async def invalid(number: int) -> None: ...

    @app.get("/free")
    async def free() -> None: ...

    client = serve(app)
    for path, status in [("/plain", 200), ("/stream", 200), ("/missing", 404)]:
        answer = client.get(path)
        assert (answer.status, answer.headers["ratelimit-policy"]) == (status, '"requests";q=9;w=60'), path
    assert client.get("/missing").headers["x-own"] == "kept"
    assert client.get("/invalid").status == 422
    assert client.get("/free").limits == {}
    assert client.get("/nowhere").status == 404


@pytest.mark.parametrize("legacy", ["RateLimit", "X-RateLimit"])
def test_legacy_fields_by_switch(legacy: Any, serve: Serve) -> None:
    options = HttpOptions(body="detail", legacy=legacy)
    client = serve(limited(ProjectRateLimiter(1, 60), store=Store.memory(), options=options))
    for status in (200, 429):
        answer = client.get("/search", x_project="1:2")
        prefix = legacy.lower()
        assert answer.status == status
        assert answer.headers["ratelimit-policy"] == '"requests";q=1;w=60'
        assert answer.headers[f"{prefix}-limit"] == "1"
        assert answer.headers[f"{prefix}-remaining"] == "0"
        assert answer.headers[f"{prefix}-reset"] == "60"


def test_problem_documents_by_switch(serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(1, 60), store=Store.memory(), options=HttpOptions()))
    client.get("/search", x_project="1:2")
    denied = client.get("/search", x_project="1:2")
    assert (denied.status, denied.headers["content-type"]) == (429, "application/problem+json")
    assert denied.json["violated-policies"] == ["requests"]
    assert "ratelimit" in denied.headers


def test_handlers_of_exceptions_get_the_decision(serve: Serve) -> None:
    app = limited(ProjectRateLimiter(1, 60), store=Store.memory())

    @app.exception_handler(RateLimitExceeded)
    async def own(request: Request, error: RateLimitExceeded) -> Response:
        assert error.result is not None
        assert error.result.is_over_limit
        assert not error.decision.allowed
        return PlainTextResponse(f"{error.result.request_count} of {error.result.max_requests}", 420)

    client = serve(app)
    client.get("/search", x_project="1:2")
    denied = client.get("/search", x_project="1:2")
    assert (denied.status, denied.body) == (420, b"1 of 1")
    assert denied.headers["ratelimit-policy"] == '"requests";q=1;w=60', "also on a response of one's own"


def test_without_setup_a_limiter_brings_its_store(serve: Serve) -> None:
    app = FastAPI()
    limiters = [Depends(PathRateLimiter(1, 60, store=Store.memory())),
                Depends(PathRateLimiter(5, 60, "more", store=Store.memory()))]

    @app.get("/search", dependencies=limiters)
    async def search() -> None: ...

    client = serve(app)
    first, second = client.get("/search"), client.get("/search")
    assert (first.status, second.status) == (200, 429)
    assert first.headers["ratelimit"] == '"requests";r=0;t=60, "more";r=4;t=60'
    assert second.headers["ratelimit"] == '"requests";r=0;t=60'
    assert second.headers["retry-after"] == "60"
