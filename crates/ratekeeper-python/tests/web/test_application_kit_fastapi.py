"""Services on Application Kit's FastAPI that change their imports alone: what counts where, and what is legal there."""

from __future__ import annotations

import importlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from conftest import DEADLINE, Backend
from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from ratekeeper import Store
from ratekeeper.application_kit import _connections, configure
from ratekeeper.application_kit.fastapi import ratelimit as kit
from ratekeeper.application_kit.fastapi.fastapi import get_fastapi_app
from ratekeeper.fastapi import ProjectRateLimiter as OurProjectRateLimiter
from web.conftest import Serve
from web.kit_fastapi import AuthenticateKey
from web.kit_script import TheirScript
from web.web_servers import Answer, Client, run_python

WHO = "1:42"


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    configure(options={}, element_key="joined", trusted_proxies=[])
    _connections._sources.clear()
    _connections._opened.clear()


@pytest.fixture
def ported(redis_backend: Backend, serve: Serve) -> Client:
    """The documents' application on a real Redis."""
    assert redis_backend.server is not None
    configure(redis={"ratelimit": redis_backend.server.url}, options={"deadline": DEADLINE})
    from web import kit_fastapi

    return serve(importlib.reload(kit_fastapi).app)


def database(backend: Backend, number: int) -> redis.Redis:
    assert backend.server is not None
    return redis.Redis(port=backend.server.port, db=number, decode_responses=True)


def app_of(**routes: Any) -> FastAPI:
    """An application with these limiters on GET of /x, POST of /x, and so on."""
    app = get_fastapi_app("tests")
    for method, limiters in routes.items():
        wanted = [Depends(AuthenticateKey()), *map(Depends, limiters)]
        app.add_api_route("/x", lambda: "ok", methods=[method.upper()], dependencies=wanted)
    return app


def remaining(answer: Answer) -> int:
    found = re.search(r";r=(\d+)", answer.headers["ratelimit"])
    assert found is not None
    return int(found[1])


def asks(kind: str) -> tuple[Callable[[Client, int], Answer], str, int, int]:
    """How the n-th request of an example is sent, and what Application Kit counts it under, with which limit."""
    matrix = {"origins": ["o"] * 10, "destinations": ["d"] * 29}
    return {
        "path": (lambda client, _: client.get("/public/endpoint"), "/public/endpoint", 100, 60),
        "webhook": (lambda client, _: client.post("/webhook", {}), "/webhook", 10, 60),
        "address": (
            lambda client, _: client.get("/public-endpoint", x_forwarded_for="6.6.6.6, 192.0.2.1"),
            "/public-endpoint:192.0.2.1", 50, 1,
        ),
        "region": (lambda client, _: client.get("/geo", x_project=WHO, x_region="eu"), "/geo:1:42:eu", 2, 60),
        "matrix": (lambda client, _: client.post("/api/matrix", matrix, x_project=WHO), "/api/matrix/elements:1:42", 1000, 60),
    }[kind]


@pytest.mark.parametrize("kind", ["path", "webhook", "region", "matrix"])
def test_the_other_examples_decide_as_the_script_and_have_as_much_left(
    redis_backend: Backend, ported: Client, kind: str
) -> None:
    ask, key, limit, window = asks(kind)
    amount = 290 if kind == "matrix" else 1
    with database(redis_backend, 0) as ours, database(redis_backend, 1) as theirs:
        script = TheirScript(theirs)
        for number in range(12):
            answer = ask(ported, number)
            over, count, _ttl, _limit, _window = script.check_key(f"ratelimit:{key}", limit, window, amount)
            assert answer.status == (429 if over else 200)
            assert answer.headers["ratelimit-policy"].endswith(f";q={limit};w={window}")
            assert remaining(answer) == limit - count
        # Of a project at its own key; keys that are made of requests are kept where no project counts.
        shared = kind == "matrix"
        assert (ours.get(f"ratelimit:{key}") == theirs.get(f"ratelimit:{key}")) == shared
        assert sorted(ours.keys("ratelimit:*")) == (sorted(theirs.keys("*")) if shared else [])
    assert ported.get("/geo", x_project=WHO, x_region="us").status == 200, "another region"


def test_an_address_is_limited_by_the_second(ported: Client) -> None:
    ask, _, limit, window = asks("address")
    answer = ask(ported, 0)
    assert answer.headers["ratelimit-policy"] == f'"requests";q={limit};w={window}' and remaining(answer) == limit - 1
    assert ported.get("/public-endpoint").limits == {}, "nobody said an address"


def test_a_first_request_above_the_limit_is_what_differs(redis_backend: Backend, ported: Client) -> None:
    with database(redis_backend, 0) as ours, database(redis_backend, 1) as theirs:
        script = TheirScript(theirs)
        endpoint = "/geocode/batch/elements"
        key = f"ratelimit:{endpoint}:1:42"
        statuses, decisions = [], []
        for size in (1500, 600, 500):
            statuses.append(ported.post("/geocode/batch", ["x"] * size, x_project=WHO).status)
            decisions.append(script.check(endpoint, 1, 42, 1000, 60, size)[0])
        assert statuses == [429, 200, 429] and ours.get(key) == "600", "denied without a trace"
        assert decisions == [1, 1, 1] and theirs.get(key) == "1500", "theirs is written, and denies all others"


def test_an_override_without_a_window_has_that_of_the_limiter(redis_backend: Backend, ported: Client) -> None:
    endpoint = "/datasets/{dataset_id}/search"
    with database(redis_backend, 0) as ours, database(redis_backend, 1) as theirs:
        for client in (ours, theirs):
            client.hset(f"ratelimit_override:{endpoint}:1:42", "max_requests", "2")
        for _ in range(3):
            answer = ported.get("/datasets/7/search", x_project=WHO)
            over, _count, _ttl, limit, window = TheirScript(theirs).check(endpoint, 1, 42, 100, 60)
            assert answer.status == (429 if over else 200)
            assert answer.headers["ratelimit-policy"] == f'"requests";q={limit};w={window}'


def test_two_limits_of_one_counter_start_and_count_as_the_script(
    redis_backend: Backend, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    assert redis_backend.server is not None
    configure(redis={"ratelimit": redis_backend.server.url}, options={"deadline": DEADLINE})
    with caplog.at_level(logging.WARNING, "ratekeeper"):
        client = serve(app_of(get=[kit.ProjectRateLimiter(100, 60)], post=[kit.ProjectRateLimiter(3, 60)]))
    assert any("/x: two limits by project, 100/min fixed_window and 3/min" in line for line in caplog.messages)
    with database(redis_backend, 0) as ours, database(redis_backend, 1) as theirs:
        for method in ("GET", "POST", "GET", "POST", "GET"):
            over = TheirScript(theirs).check("/x", 1, 42, 100 if method == "GET" else 3, 60)[0]
            assert client.send(method, "/x", None, x_project=WHO).status == (429 if over else 200)
            assert ours.get("ratelimit:/x:1:42") == theirs.get("ratelimit:/x:1:42")


@pytest.mark.parametrize("by", ["dependency", "client"])
def test_two_servers_are_two_counters(serve: Serve, caplog: pytest.LogCaptureFixture, by: str) -> None:
    stores = {"first": Store.memory(), "second": Store.memory()}
    configure(redis=stores)
    first, second = (
        {"redis_dependency": name} if by == "dependency" else {"redis_client": store} for name, store in stores.items()
    )
    both = [kit.ProjectRateLimiter(1, 60, **first), kit.ProjectRateLimiter(2, 60, "slow", **second)]
    with caplog.at_level(logging.WARNING, "ratekeeper"):
        client = serve(app_of(get=both))
    assert [client.get("/x", x_project=WHO).status for _ in range(2)] == [200, 429]
    assert not caplog.messages


def test_ours_beside_theirs_is_told_and_two_of_ours_are_refused() -> None:
    from ratekeeper.fastapi import Settings
    from ratekeeper.fastapi._start import check_routes

    settings = Settings(store=Store.memory())
    check_routes(app_of(get=[kit.ProjectRateLimiter(1, 60)], post=[OurProjectRateLimiter(2, 60)]).routes, settings)
    with pytest.raises(ValueError, match="got two limits by project"):
        check_routes(app_of(get=[OurProjectRateLimiter(1, 60)], post=[OurProjectRateLimiter(2, 60)]).routes, settings)


def test_what_is_mounted_counts_without_its_mount(redis_backend: Backend, serve: Serve) -> None:
    assert redis_backend.server is not None
    configure(redis={"ratelimit": redis_backend.server.url}, options={"deadline": DEADLINE})
    outer, inner = get_fastapi_app("outer"), app_of(get=[kit.ProjectRateLimiter(5, 60)])

    @inner.get("/applied", dependencies=[Depends(AuthenticateKey())])
    async def applied(request: Request, response: Response) -> None:
        await kit.apply_rate_limit(request, response, 5, 60, _connections.store_named())

    outer.mount("/v1/{region}", inner)
    client = serve(outer)
    assert {client.get(path, x_project=WHO).status for path in ("/v1/eu/x", "/v1/eu/applied")} == {200}
    with database(redis_backend, 0) as ours:
        assert sorted(ours.keys("ratelimit*")) == ["ratelimit:/applied:1:42", "ratelimit:/x:1:42"]


@pytest.mark.parametrize(("options", "prefix"), [({}, "ratelimit"), ({"use_x_ratelimit_prefix": True}, "x-ratelimit")])
def test_legacy_fields_of_two_limiters_are_those_of_the_last(serve: Serve, options: Any, prefix: str) -> None:
    app = get_fastapi_app("tests", **options)
    limiters = [
        kit.ProjectRateLimiter(5, 60, store=Store.memory()), kit.PathRateLimiter(100, 30, "second", store=Store.memory()),
    ]

    @app.get("/x", dependencies=[Depends(AuthenticateKey()), *map(Depends, limiters)])
    async def x() -> None: ...

    client = serve(app)
    for left in range(4, -1, -1):
        answer = client.get("/x", x_project=WHO)
        assert answer.headers["ratelimit-policy"] == '"requests";q=5;w=60, "second";q=100;w=30'
        told = [answer.headers[f"{prefix}-{name}"] for name in ("limit", "remaining", "reset")]
        assert told[:2] == ["100", str(95 + left)] and 0 < int(told[2]) <= 30
        assert ("ratelimit-limit" in answer.headers) == (prefix == "ratelimit")


def request_of(**state: int) -> Request:
    return Request({"type": "http", "method": "GET", "path": "/x", "headers": [], "state": state})


async def test_nothing_is_asked_of_a_client_that_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"organization_id": 1, "project_id": 2}
    for wrong, words in (((0, 60), "max_requests"), ((1, 0), "expiry")):
        with pytest.raises(ValueError, match=f"{words} must be at least 1"):
            await kit.apply_rate_limit(request_of(**known), Response(), *wrong, None)
    with pytest.raises(ValueError, match="increment_amount must be at least 1"):
        await kit.apply_element_rate_limit(request_of(**known), Response(), 1, 1, 0, None)
    await kit.apply_rate_limit(request_of(), Response(), 1, 60, None)
    with pytest.raises(TypeError, match="redis_client: expected a client of redis-py or a Store, got NoneType"):
        await kit.apply_rate_limit(request_of(**known), Response(), 1, 60, None)
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    await kit.apply_rate_limit(request_of(**known), Response(), 1, 60, None)


async def test_fields_of_exceptions_have_the_names_of_the_documents() -> None:
    store, request = Store.memory(), request_of(organization_id=1, project_id=2)
    await kit.apply_rate_limit(request, Response(), 1, 60, store)
    with pytest.raises(kit.RateLimitExceeded) as caught:
        await kit.apply_rate_limit(request, Response(), 1, 60, store)
    fields = caught.value.headers
    assert fields is not None and json.loads(json.dumps(fields)) == fields
    assert fields["RateLimit"] == fields["ratelimit"] == '"requests";r=0;t=60'
    assert sorted(fields) == ["Cache-Control", "RateLimit", "RateLimit-Policy", "Retry-After"]


def test_what_is_left_out_says_why() -> None:
    with pytest.raises(ImportError, match="PROJECT_RATE_LIMITER_LUA is left out: the engine has scripts of its own"):
        from ratekeeper.application_kit.ratelimit import PROJECT_RATE_LIMITER_LUA  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'anything'"):
        from ratekeeper.application_kit.ratelimit import anything  # noqa: F401


def test_datadog_sees_spans_around_checks() -> None:
    told = run_python(
        """
import asyncio, ddtrace.trace
from starlette.requests import Request
from starlette.responses import Response
from ratekeeper import Store
from ratekeeper.application_kit.fastapi import ratelimit as kit

class Seen(ddtrace.trace.TraceFilter):
    def process_trace(self, trace):
        print(sorted((span.name, span.error) for span in trace))
        return None

ddtrace.trace.tracer.configure(trace_processors=[Seen()])
state = {"organization_id": 1, "project_id": 2}
request = Request({"type": "http", "method": "GET", "path": "/x", "headers": [], "state": state})
store = Store.memory()

async def ask():
    await kit.apply_element_rate_limit(request, Response(), 5, 60, 2, store)
    await kit.ProjectRateLimiter(5, 60, store=store)(request, Response())

with ddtrace.trace.tracer.trace("web.request"):
    asyncio.run(ask())
ddtrace.trace.tracer.flush()
""",
        DD_TRACE_ENABLED="true", DD_INSTRUMENTATION_TELEMETRY_ENABLED="false", DD_REMOTE_CONFIGURATION_ENABLED="false",
        DD_TRACE_STARTUP_LOGS="false",
    )
    module = "application_kit.fastapi.ratelimit"
    assert told.splitlines()[0] == str([
        (f"{module}.ProjectRateLimiter", 0), (f"{module}.apply_element_rate_limit", 0), (f"{module}.apply_rate_limit", 0),
        ("web.request", 0),
    ])
