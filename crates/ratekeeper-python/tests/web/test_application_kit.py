"""`ratekeeper.application_kit`: the documents' examples by their imports alone, beside the script that they describe."""

from __future__ import annotations

import asyncio
import importlib
import json
import pickle
import types
from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from conftest import DEADLINE, Backend
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from ratekeeper import Limiter, Rule, Store
from ratekeeper.application_kit import _connections, configure, store_of_client
from ratekeeper.application_kit.authenticator.utils import extract_user_ip_from_headers
from ratekeeper.application_kit.fastapi import ratelimit as kit
from ratekeeper.application_kit.ratelimit import RateLimitResult
from ratekeeper.application_kit.ratelimit_overrides import RateLimitOverride, get_rate_limit_override, set_rate_limit_override
from web.conftest import Serve
from web.kit_script import TheirScript

ENDPOINT = "/datasets/{dataset_id}/search"


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    monkeypatch.undo()
    configure(options={}, element_key="joined", trusted_proxies=[])
    _connections._sources.clear()
    _connections._opened.clear()


@pytest.fixture
def ported(redis_backend: Backend, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The documents' application, told by its environment where Redis is."""
    assert redis_backend.server is not None
    monkeypatch.setenv("RATEKEEPER_REDIS_RATELIMIT", redis_backend.server.url)
    configure(options={"deadline": DEADLINE})
    from web import kit_fastapi

    return serve(importlib.reload(kit_fastapi).app)


def database(backend: Backend, number: int) -> redis.Redis:
    """Another database of the server: what they count must not meet what we count."""
    assert backend.server is not None
    return redis.Redis(port=backend.server.port, db=number, decode_responses=True)


def test_the_examples_decide_and_count_as_the_script(redis_backend: Backend, ported: Any) -> None:
    with database(redis_backend, 0) as ours, database(redis_backend, 1) as theirs:
        script = TheirScript(theirs)
        for client in (ours, theirs):
            client.hset(f"ratelimit_override:{ENDPOINT}:1:42", mapping={"max_requests": "3", "expiry": "120"})
            client.hset(f"ratelimit_org_override:{ENDPOINT}:1", mapping={"max_requests": "2", "expiry": "30"})
        for who, asked in [("1:42", 5), ("1:43", 4), ("2:42", 3)]:
            organisation, project = map(int, who.split(":"))
            key = f"ratelimit:{ENDPOINT}:{who}"
            for _ in range(asked):
                answer = ported.get("/datasets/7/search", x_project=who)
                over, _count, ttl, limit, window = script.check(ENDPOINT, organisation, project, 100, 60)
                assert (answer.status == 429) == bool(over)
                assert ours.get(key) == theirs.get(key)
                assert abs(ours.ttl(key) - ttl) <= 2
                assert answer.headers["ratelimit-policy"] == f'"requests";q={limit};w={window}'
        assert sorted(ours.keys("ratelimit:*")) == sorted(theirs.keys("ratelimit:*"))


def test_one_counter_for_both(redis_backend: Backend, ported: Any) -> None:
    with database(redis_backend, 0) as shared:
        shared.hset(f"ratelimit_override:{ENDPOINT}:1:42", mapping={"max_requests": "6", "expiry": "60"})
        script = TheirScript(shared)
        passed = 0
        for _ in range(5):
            passed += ported.get("/datasets/7/search", x_project="1:42").status == 200
            passed += not script.check(ENDPOINT, 1, 42, 100, 60)[0]
        assert passed == 6 and shared.get(f"ratelimit:{ENDPOINT}:1:42") == "6"


@pytest.mark.parametrize(("element_key", "suffix"), [("joined", "/elements"), ("colon", ":/elements")])
def test_elements_count_where_the_documents_say(
    redis_backend: Backend, ported: Any, element_key: Any, suffix: str
) -> None:
    configure(element_key=element_key)
    with database(redis_backend, 0) as ours, database(redis_backend, 1) as theirs:
        script = TheirScript(theirs)
        elements = f"/geocode/batch{suffix}"
        for size in (600, 300, 200, 100):
            answer = ported.post("/geocode/batch", ["x"] * size, x_project="1:42")
            over = script.check("/geocode/batch", 1, 42, 100, 60)[0] or script.check(elements, 1, 42, 1000, 60, size)[0]
            assert (answer.status == 429) == bool(over)
            for endpoint in ("/geocode/batch", elements):
                key = f"ratelimit:{endpoint}:1:42"
                assert ours.get(key) == theirs.get(key)
            assert [part.split(";")[0] for part in answer.headers["ratelimit-policy"].split(", ")] == [
                '"requests"', '"elements"',
            ]
        assert ours.get(f"ratelimit:{elements}:1:42") == "1000"


def test_denials_and_legacy_fields(redis_backend: Backend, ported: Any) -> None:
    with database(redis_backend, 0) as client:
        client.hset(f"ratelimit_override:{ENDPOINT}:1:42", mapping={"max_requests": "1", "expiry": "60"})
    ported.get("/datasets/7/search", x_project="1:42")
    denied = ported.get("/datasets/7/search", x_project="1:42")
    assert (denied.status, denied.json) == (429, {"detail": "Rate limit exceeded. Try again later."})
    assert denied.headers["ratelimit-limit"] == "1" and denied.headers["ratelimit-remaining"] == "0"
    described = ported.get("/openapi.json").json["paths"]["/datasets/{dataset_id}/search"]["get"]
    assert described["description"] == "Search within a dataset.\n\n**Ratelimit:** 100/60s"
    assert (described["x-ratelimit-limit"], described["x-ratelimit-window-seconds"]) == (100, 60)


async def test_overrides_by_a_client_of_another_loop(
    redis_backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    from web import kit_fastapi as examples

    assert redis_backend.server is not None
    configure(options={"deadline": DEADLINE})
    client = redis.asyncio.Redis(port=redis_backend.server.port)
    with database(redis_backend, 0) as beside:
        await examples.grant_higher_limit(client, 1, 2)
        assert beside.hmget(f"ratelimit_override:{ENDPOINT}:1:2", "max_requests", "expiry") == ["1000", "60"]
        await examples.grant_org_higher_limit(client, 1)
        assert beside.hmget(f"ratelimit_org_override:{ENDPOINT}:1", "max_requests", "expiry") == ["500", "60"]
        beside.flushall()
        # As the article writes it.
        spelt: Any = {"org_id": 1, "project_id": 2, "endpoint": "/api/search", "max_requests": 500, "expiry": 120}
        await set_rate_limit_override(client, **spelt, override_ttl=86400)
        found = await get_rate_limit_override(client, 1, 2, "/api/search")
        assert found == RateLimitOverride(max_requests=500, expiry=120)
    # In a loop of its own: the client's connections are not used.
    await asyncio.to_thread(asyncio.run, examples.manage_overrides(client))
    await examples.manage_org_overrides(client)
    assert capsys.readouterr().out == (
        "Limit: 500, Window: 120s\nDeleted: True\nCleared 0 overrides\nDeleted: False\nCleared 0 overrides\n"
    )
    assert client.connection_pool._available_connections == [], "nothing was ever sent by it"
    await client.aclose()


async def test_temporary_overrides(redis_backend: Backend) -> None:
    from web import kit_fastapi as examples

    assert redis_backend.server is not None
    configure(options={"deadline": DEADLINE})
    client = redis.asyncio.Redis(port=redis_backend.server.port)
    await examples.temporary_project_override(client)
    await examples.temporary_org_override(client)
    with database(redis_backend, 0) as beside:
        for key, limit, ttl in (("override:/api/v1/search:1:2", "1000", 3600), ("org_override:/api/v1/search:1", "500", 86400)):
            assert beside.hmget(f"ratelimit_{key}", "max_requests", "expiry") == [limit, "60"]
            assert ttl - 60 < beside.ttl(f"ratelimit_{key}") <= ttl
    await client.aclose()


async def test_settings_are_read_of_every_kind_of_client(monkeypatch: pytest.MonkeyPatch) -> None:
    import redis.asyncio.sentinel
    from redis.cluster import NodesManager
    from redis.sentinel import Sentinel

    # The sync one connects when it is made.
    monkeypatch.setattr(NodesManager, "initialize", lambda *_, **__: None)
    monkeypatch.setattr("redis.cluster.CommandsParser", lambda _: None)

    pool: Any = redis.ConnectionPool(connection_class=redis.SSLConnection, host="::1", port=1, password="p@:", db=2)
    clients: list[Any] = [
        redis.Redis(host="a.internal", port=7, username="ann", password="s/c"),
        redis.Redis(unix_socket_path="/run/redis.sock", password="pw"),
        redis.Redis(connection_pool=pool),
        Sentinel([("s1", 26379), ("s2", 1)], sentinel_kwargs={"password": "x"}).master_for("main", password="y"),  # type: ignore[no-untyped-call]
        redis.asyncio.Redis(host="b.internal"),
        redis.asyncio.sentinel.Sentinel([("s3", 3)]).master_for("other", username="ann", password="z", db=4),  # type: ignore[no-untyped-call]
        redis.RedisCluster(host="c1.internal", port=7000, password="w"),
        redis.asyncio.RedisCluster(host="c2.internal", port=7001, username="ann", password="w", ssl=True, ssl_ca_data=None),
    ]
    from ratekeeper.application_kit._clients import _server_of

    assert [_server_of(client)[0] for client in clients] == [
        "redis://ann:s%2Fc@a.internal:7/0", "redis+unix:///run/redis.sock?pass=pw", "rediss://:p%40%3A@[::1]:1/2",
        "redis+sentinel://:y@s1:26379,s2:1/main/0?sentinel_password=x", "redis://b.internal:6379/0",
        "redis+sentinel://ann:z@s3:3/other/4", "redis+cluster://:w@c1.internal:7000", "rediss+cluster://ann:w@c2.internal:7001",
    ]
    assert store_of_client(clients[0]) is store_of_client(redis.Redis(host="a.internal", port=7, username="ann", password="s/c"))
    for client in clients:
        assert store_of_client(client).kind == "redis"


def test_clients_that_mean_something_else_are_refused() -> None:
    with pytest.raises(TypeError, match="redis_client: expected a client of redis-py or a Store, got str"):
        store_of_client("redis://")
    provider: Any = redis.Redis(credential_provider=redis.UsernamePasswordCredentialProvider("a", "b"))
    with pytest.raises(ValueError, match="credential_provider"):
        store_of_client(provider)
    with pytest.raises(ValueError, match="ssl_cert_reqs"):
        store_of_client(redis.Redis(ssl=True, ssl_cert_reqs="none"))
    for loose in (redis.Redis, redis.asyncio.Redis):
        with pytest.raises(ValueError, match="got one with ssl_check_hostname=False; expected one that checks who"):
            store_of_client(loose(ssl=True, ssl_check_hostname=False))
    with pytest.raises(ValueError, match="ssl_check_hostname=False"):
        store_of_client(redis.asyncio.RedisCluster(host="c", ssl=True, ssl_check_hostname=False))
    for made in (fakeredis.FakeRedis, fakeredis.FakeAsyncRedis):
        with pytest.raises(ValueError, match="got one of fakeredis, which has no server; expected a Store"):
            store_of_client(made())
    # That of older versions of redis-py, which check no names unless they are told to.
    lax: Any = type("SSLConnection", (), {"__init__": lambda self, ssl_check_hostname=False: None})
    pool = types.SimpleNamespace(connection_class=lax, connection_kwargs={"host": "a", "ssl_check_hostname": False})
    assert store_of_client(types.SimpleNamespace(connection_pool=pool)).kind == "redis"


def test_a_limiter_takes_a_client(redis_backend: Backend, serve: Serve) -> None:
    assert redis_backend.server is not None
    configure(options={"deadline": DEADLINE})
    client = redis.asyncio.Redis(port=redis_backend.server.port)
    app = FastAPI()

    @app.get("/x", dependencies=[Depends(kit.PathRateLimiter(1, 60, redis_client=client))])
    async def x() -> None: ...

    server = serve(app)
    assert [server.get("/x").status for _ in range(2)] == [200, 429]


def test_what_says_nowhere_where_redis_is(serve: Serve) -> None:
    with pytest.raises(RuntimeError, match="nothing says where 'ratelimit' is: set RATEKEEPER_REDIS_RATELIMIT"):
        _connections.store_named()


@pytest.mark.parametrize("limiter", [kit.PathRateLimiter, kit.ProjectRateLimiter])
def test_monitor_mode_is_as_documented(limiter: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    from web.kit_fastapi import AuthenticateKey

    app, router = FastAPI(), APIRouter()
    made = limiter(1, 60, store=Store.memory())

    @router.get("/x", dependencies=[Depends(AuthenticateKey()), Depends(made)])
    async def x() -> None: ...

    app.include_router(router)
    server = serve(app)
    monkeypatch.setenv("RATE_LIMIT_MODE", "monitor")
    answers = [server.get("/x", x_project="1:2") for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert bool(answers[1].limits) == (limiter is kit.ProjectRateLimiter), "others are off then"


def test_results_and_exceptions() -> None:
    result = RateLimitResult.from_lua_result([1, b"95", 30, 100], policy_name="elements")
    assert (result.is_over_limit, result.request_count, result.ttl, result.max_requests) == (True, 95, 30, 100)
    assert result.remaining == 5 and result.policy_name == "elements"
    assert result.to_headers() == {
        "RateLimit-Limit": "100", "RateLimit-Remaining": "5", "RateLimit-Reset": "30",
    }
    windowed = RateLimitResult.from_lua_result([0, 1, 60, 100, 60])
    assert windowed.to_structured_headers() == {
        "RateLimit-Policy": '"requests";q=100;w=60', "RateLimit": '"requests";r=99;t=60',
    }
    with pytest.raises(ValueError, match="raw: got 3 values"):
        RateLimitResult.from_lua_result([1, 2, 3])
    error = kit.RateLimitExceeded(result)
    assert isinstance(error, HTTPException) and error.status == 429 and error.result == result
    assert error.headers is not None and {"retry-after", "Retry-After"} == {n for n in ("retry-after", "Retry-After") if n in error.headers}
    again = pickle.loads(pickle.dumps(error))
    assert (again.status, again.result, again.headers, again.detail) == (429, result, error.headers, error.detail)


def test_overrides_are_models() -> None:
    override = RateLimitOverride.model_validate({"max_requests": "500", "expiry": 120})
    assert override.model_dump() == {"max_requests": 500, "expiry": 120}
    assert json.loads(override.model_dump_json()) == override.model_dump()
    assert RateLimitOverride.model_validate_json(override.model_dump_json()) == override
    assert RateLimitOverride.model_validate(override) is override and isinstance(override, BaseModel)
    assert override.model_dump(include={"expiry"}) == {"expiry": 120} and override.model_dump(exclude={"expiry"}) == {"max_requests": 500}
    override.max_requests = 7
    assert override.model_copy(update={"expiry": 1}) == RateLimitOverride(max_requests=7, expiry=1)
    for wrong in ({}, {"max_requests": "x", "expiry": 1}, {"max_requests": -1, "expiry": 1}):
        with pytest.raises(ValueError, match="max_requests"):
            RateLimitOverride.model_validate(wrong)


def test_the_address_is_what_proxies_say() -> None:
    headers = Headers(raw=[(b"x-forwarded-for", b"6.6.6.6, 192.0.2.1"), (b"x-forwarded-for", b"10.0.0.3")])
    assert extract_user_ip_from_headers(headers) == "10.0.0.3"
    configure(trusted_proxies=["10.0.0.0/8"])
    assert extract_user_ip_from_headers(headers) == "192.0.2.1"
    assert extract_user_ip_from_headers({"X-Forwarded-For": "192.0.2.9"}) == "192.0.2.9"
    assert extract_user_ip_from_headers({}) is None


async def test_legacy_fields_come_from_the_last_policy() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        fields = {"RateLimit-Policy": '"a,b;q=9";q=100;w=60, "c";q=5;w=1', "RateLimit": '"a,b;q=9";r=9;t=9, "c";r=4;t=1'}
        await Response(headers=fields)(scope, receive, send)

    for prefix, options in (("ratelimit", {}), ("x-ratelimit", {"use_x_ratelimit_prefix": True})):
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        await kit.LegacyRateLimitHeaderMiddleware(app, **options)({"type": "http"}, None, send)  # type: ignore[arg-type]
        fields = dict(sent[0]["headers"])
        told = [fields[f"{prefix}-{name}".encode()] for name in ("limit", "remaining", "reset")]
        assert told == [b"5", b"4", b"1"]


def test_spans_are_around_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    request = Request({"type": "http", "method": "GET", "path": "/x", "headers": [], "state": {"organization_id": 1, "project_id": 2}})
    store = Store.memory()

    async def ask() -> None:
        await kit.apply_rate_limit(request, Response(), 1, 60, store)
        await kit.apply_element_rate_limit(request, Response(), 5, 60, 2, store)
        await kit.ProjectRateLimiter(5, 60, store=store)(request, Response())

    asyncio.run(ask())
    module = "application_kit.fastapi.ratelimit"
    assert sorted(span.name for span in exporter.get_finished_spans()) == [
        f"{module}.ProjectRateLimiter", f"{module}.apply_element_rate_limit", f"{module}.apply_rate_limit",
        f"{module}.apply_rate_limit",
    ]
    assert Limiter(store, Rule("requests", "1/60s fixed_window")).check_project("/x", 1, 2).allowed is False
