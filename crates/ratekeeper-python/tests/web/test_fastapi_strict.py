"""FastAPI: mistakes that were silent, and what programs that know Application Kit expect."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from servers import RedisServer

from ratekeeper import HttpOptions, Policies, PolicyLimiter, Quota, RateLimitResult, Store
from ratekeeper import _modes as modes
from ratekeeper.fastapi import (
    KeyRateLimiter,
    PathRateLimiter,
    ProjectRateLimiter,
    RateLimiter,
    RateLimitExceeded,
    RateLimitMode,
    apply_rate_limit,
    get_rate_limit_mode,
    is_rate_limit_disabled,
    setup,
)
from web import ported
from web.conftest import Serve
from web.fastapi_site import DETAIL, application, limited, messages_of, request_of
from web.web_servers import Answer


class Regional(ProjectRateLimiter):
    def make_key(self, request: Request) -> str | None:
        key = super().make_key(request)
        return key and f"{key}:eu"


class Nothing(RateLimiter):
    def make_key(self, request: Request) -> str | None:
        return None


@pytest.mark.parametrize("limiter", [ProjectRateLimiter(1), Regional(1), Nothing(1)])
async def test_a_forgotten_setup_is_told_whoever_asks(limiter: RateLimiter) -> None:
    app = FastAPI()
    app.get("/", dependencies=[Depends(limiter)])(lambda: None)
    with pytest.raises(RuntimeError, match="no store: call ratekeeper.fastapi.setup"):
        await messages_of(app, "/")
    with pytest.raises(RuntimeError, match="no store: call ratekeeper.fastapi.setup"):
        await apply_rate_limit(request_of({}), Response(), 1, 60)


async def test_requests_of_nobody_are_told_once_for_an_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    setup(app, store=Store.memory())
    app.get("/nobodys/{item}", dependencies=[Depends(ProjectRateLimiter(1))])(lambda: None)

    @app.get("/applied-to-nobody")
    async def applied(request: Request, response: Response) -> None:
        await apply_rate_limit(request, response, 1, 60)

    with caplog.at_level(logging.WARNING, "ratekeeper"):
        for path in ["/nobodys/1", "/nobodys/2", "/applied-to-nobody"] * 3:
            assert (await messages_of(app, path))[0]["status"] == 200
    told = [record.getMessage().split(": a request of nobody")[0] for record in caplog.records]
    assert told == ["/nobodys/{item}", "/applied-to-nobody"]


@pytest.mark.parametrize("mode", ["off", RateLimitMode.monitor, lambda: RateLimitMode.monitor, lambda: None])
def test_the_mode_of_a_request_is_that_of_its_application(serve: Serve, mode: Any) -> None:
    expected = mode() if callable(mode) else mode
    app = application(Store.memory(), mode=mode)

    def said() -> dict[str, Any]:
        found = get_rate_limit_mode()
        assert type(found) is RateLimitMode and found is RateLimitMode[found.value]
        return {"mode": found, "disabled": is_rate_limit_disabled()}

    app.get("/sync")(said)

    @app.get("/async")
    async def asynchronously() -> dict[str, Any]:
        return said()

    inner = application(Store.memory())
    inner.get("/inner")(said)
    app.mount("/mounted", inner)
    client = serve(app)
    shown = {"mode": expected or "on", "disabled": expected is not None}
    assert client.get("/sync").json == client.get("/async").json == shown
    assert client.get("/mounted/inner").json == {"mode": "on", "disabled": False}, "it has settings of its own"
    assert get_rate_limit_mode() is RateLimitMode.on, "this is no request"


def test_a_problem_with_the_mode_is_told_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(modes.time, "monotonic", lambda: now[0])
    numbers = itertools.count()

    def broken() -> Any:
        raise ConnectionError(f"request {next(numbers)} timed out")

    with caplog.at_level(logging.ERROR, "ratekeeper"):
        for _ in range(50):
            assert modes.current_mode(broken) == "on"
        assert len(caplog.records) == 1
        now[0] += 61
        assert modes.current_mode(broken) == "on"
    first, second = (record.getMessage() for record in caplog.records)
    assert "request 0 timed out" in first and "request 50 timed out" in second


async def statuses(app: FastAPI, count: int) -> list[int]:
    return [(await messages_of(app, "/search"))[0]["status"] for _ in range(count)]


async def test_fields_of_limiters_can_be_set() -> None:
    limiter = ProjectRateLimiter(5, 60)
    app = limited(limiter, store=Store.memory(), identify=lambda request: (1, 2))
    assert await statuses(app, 1) == [200]
    limiter.max_requests = 2
    assert limiter.quota == Quota.fixed_window(2, 60)
    assert await statuses(app, 2) == [200, 429]
    limiter.policy_name = "other"
    start = (await messages_of(app, "/search"))[0]
    assert b'"other";q=2' in dict(start["headers"])[b"ratelimit-policy"]
    limiter.store = Store.memory()
    assert await statuses(app, 3) == [200, 200, 429]
    with pytest.raises(ValueError, match="max_requests must be at least 1"):
        limiter.max_requests = 0
    with pytest.raises(ValueError, match="algorithm"):
        limiter.algorithm = "none"
    with pytest.raises(TypeError, match="quota: expected Quota"):
        limiter.quota = 5  # type: ignore[assignment]
    assert (limiter.max_requests, limiter.algorithm, limiter.quota.limit) == (2, "fixed_window", 2), "as before"


async def test_a_field_can_be_set_in_call() -> None:
    class Tiered(ProjectRateLimiter):
        async def __call__(self, request: Request, response: Response) -> None:  # type: ignore[override]
            self.max_requests = 1
            await super().__call__(request, response)

    # Earlier versions of FastAPI cannot resolve text.
    Tiered.__call__.__annotations__.update(request=Request, response=Response)
    app = limited(Tiered(50, 60), store=Store.memory(), identify=lambda request: (1, 2))
    assert await statuses(app, 2) == [200, 429]


def own_handler(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def handler(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code)


def mounted(app: FastAPI, *, with_setup: bool) -> FastAPI:
    inner = FastAPI()
    if with_setup:
        setup(inner, store=Store.memory(), identify=lambda request: (1, 2))
    app.mount("/mounted", inner)
    return inner


@pytest.mark.parametrize("where", ["here", "mounted", "mounted with setup"])
def test_a_denial_is_whole_whoever_answers_it(serve: Serve, where: str) -> None:
    app = application(Store.memory())
    inner = app if where == "here" else mounted(app, with_setup=where == "mounted with setup")
    own_handler(inner)
    inner.get("/search", dependencies=[Depends(PathRateLimiter(1, 60))])(lambda: None)
    client = serve(app)
    path = "/search" if where == "here" else "/mounted/search"
    assert client.get(path).status == 200
    denied = client.get(path)
    assert (denied.status, denied.json) == (429, {"error": DETAIL["detail"]})
    assert denied.headers["cache-control"] == "no-store"
    assert 0 < int(denied.headers["retry-after"]) <= 60
    assert denied.headers["ratelimit"].startswith('"requests";r=0')


def test_an_outage_is_whole_as_well(serve: Serve, own_server: RedisServer) -> None:
    store = Store.redis(own_server.url)
    own_server.kill()
    app = application(store, on_outage="deny")
    own_handler(app)
    app.get("/search", dependencies=[Depends(PathRateLimiter(1, 60))])(lambda: None)
    denied = serve(app).get("/search")
    assert (denied.status, denied.headers["retry-after"]) == (503, "1")


def test_answers_of_another_kind_are_left_alone(serve: Serve) -> None:
    app = application(Store.memory())

    @app.exception_handler(RateLimitExceeded)
    async def handler(request: Request, error: RateLimitExceeded) -> Response:
        return Response("later", 200 if "x-ok" in request.headers else 429, {"Retry-After": "7"})

    app.get("/search", dependencies=[Depends(PathRateLimiter(1, 60))])(lambda: None)
    client = serve(app)
    client.get("/search")
    answers: list[Answer] = [client.get("/search"), client.get("/search", x_ok="1")]
    assert [(a.status, a.headers["retry-after"]) for a in answers] == [(429, "7"), (200, "7")]
    assert "cache-control" not in answers[1].headers


@pytest.mark.parametrize("where", ["/search", "/mounted/search"])
def test_problem_documents_hold_in_mounted_applications(serve: Serve, where: str) -> None:
    app = application(Store.memory(), options=HttpOptions(body="problem"))
    for each in (app, mounted(app, with_setup=False)):
        each.get("/search", dependencies=[Depends(PathRateLimiter(1, 60))])(lambda: None)
    client = serve(app)
    assert client.get(where).status == 200
    denied = client.get(where)
    assert (denied.status, denied.headers["content-type"]) == (429, "application/problem+json")
    assert denied.json["status"] == 429
    assert 0 < int(denied.headers["retry-after"]) <= 60


def test_a_denial_can_be_made_of_a_result() -> None:
    result = RateLimitResult(is_over_limit=True, request_count=5, ttl=7, max_requests=5, policy_name="own")
    error = RateLimitExceeded(result)
    assert (error.status_code, error.detail, error.result) == (429, DETAIL["detail"], result)
    assert (error.headers or {})["retry-after"] == "7"
    assert (error.decision.allowed, error.decision.verdicts[0].limit) == (False, 5)


async def test_the_document_follows_policies() -> None:
    def policy(limit: int) -> str:
        return f'service = "s"\n[[rules]]\nname = "all"\nkeys = "all"\nquota = "{limit}/m fixed_window"\n'

    policies = Policies()
    policies.install(policy(5))
    policies.install('{"_id": "keyed", "last_updated": "2025-10-10T14:23:00Z", "general_rate_limit": {"rpm": 7}}', "json")
    app = FastAPI()
    setup(app, policies=PolicyLimiter(Store.memory(), policies), service="s")
    app.get("/plain")(lambda: None)
    app.get("/keyed", dependencies=[Depends(KeyRateLimiter("keyed", lambda request: "k"))])(lambda: None)

    def limit(path: str) -> Any:
        return app.openapi()["paths"][path]["get"]["description"]

    assert limit("/plain") == "**Ratelimit:** 5/60s"
    assert limit("/keyed") == "**Ratelimit:** 5/60s (all), 7/60s (general.rpm)"
    assert app.openapi() is app.openapi()
    policies.install(policy(6))
    assert limit("/plain") == "**Ratelimit:** 6/60s"


async def test_a_ported_program_runs() -> None:
    # Its types are checked by mypy.
    assert await ported.overrides(Store.memory()) == [("/x", 2)]
    assert (await messages_of(ported.app, "/search"))[0]["status"] == 200


def test_of_two_limiters_alike_the_one_with_less_left_is_told(serve: Serve) -> None:
    app = application(Store.memory(), identify=lambda request: (1, 2))
    limiters: list[RateLimiter] = [ProjectRateLimiter(3, 60), PathRateLimiter(3, 60)]
    for dependencies, prefix in [(limiters, "/one"), (limiters[::-1], "/other")]:
        app.get(prefix + "/e/{item}", dependencies=[Depends(limiter) for limiter in dependencies])(lambda: None)
    client = serve(app)
    for prefix in ("/one", "/other"):
        answers = [client.get(f"{prefix}/e/{item}") for item in range(4)]
        assert [(a.status, a.headers["ratelimit"][:14]) for a in answers] == [
            (200, '"requests";r=2'), (200, '"requests";r=1'), (200, '"requests";r=0'), (429, '"requests";r=0'),
        ]
