"""Policies in FastAPI: rules at the door, and limits for keys that a service makes itself."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import pymongo
import pytest
from conftest import Backend
from fastapi import Depends, FastAPI, Request
from fastapi.responses import StreamingResponse
from servers import MongoServer, wait_for

from ratekeeper import HttpOptions, Policies, PolicyLimiter, Store
from ratekeeper.fastapi import KeyRateLimiter, ProjectRateLimiter, RateLimitMiddleware, Settings, setup
from web.conftest import Serve
from web.web_servers import TIMEOUT

SENTIMENT = {
    "_id": "sentiment",
    "last_updated": "2025-10-10T14:23:00Z",
    "general_rate_limit": {"rps": 1000, "rpm": 2},
    "custom_rate_limits": {"tenant:client-corp:lang:en": {"rpm": 3}},
}


def guarded(policy: str, store: Store | None = None, **options: Any) -> FastAPI:
    """An application at whose door the rules of a policy are."""
    policies = Policies()
    service = policies.install(f'service = "api"\n{policy}')
    app = FastAPI()
    setup(app, store=Store.memory(), policies=PolicyLimiter(store, policies), service=service, **options)

    @app.get("/search")
    async def search() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/echo")
    async def echo(request: Request) -> Any:
        return {"length": len(await request.body())}

    return app


PER_KEY = """
[[rules]]
name = "per-key"
keys = "key:{header.x-api-key}"
quota = "2/m fixed_window"
"""


def test_rules_apply_to_every_request(store: Store, serve: Serve) -> None:
    client = serve(guarded(PER_KEY, store))
    first, second, third = (client.get("/search", x_api_key="a") for _ in range(3))
    assert (first.status, second.status, third.status) == (200, 200, 429)
    assert first.limits == {"ratelimit-policy": '"per-key";q=2;w=60', "ratelimit": '"per-key";r=1;t=60'}
    assert third.json == {"detail": "Rate limit exceeded. Try again later."}
    assert third.headers["ratelimit-policy"] == '"per-key";q=2;w=60'
    assert 0 < int(third.headers["retry-after"]) <= 60
    assert client.get("/nowhere", x_api_key="a").status == 429, "also where there is no route"
    assert client.get("/search", x_api_key="b").status == 200
    assert client.get("/search").limits == {}, "a request without the key"


def test_problem_documents_by_switch(serve: Serve) -> None:
    client = serve(guarded(PER_KEY, options=HttpOptions()))
    denied = [client.get("/search", x_api_key="a") for _ in range(3)][-1]
    assert (denied.status, denied.headers["content-type"]) == (429, "application/problem+json")
    assert denied.json["violated-policies"] == ["per-key"]


def test_fields_of_rules_and_limiters_accumulate(serve: Serve) -> None:
    app = guarded(PER_KEY, identify=lambda request: (1, 2))

    @app.get("/both", dependencies=[Depends(ProjectRateLimiter(1, 30))])
    async def both() -> None: ...

    client = serve(app)
    for status in (200, 429):
        answer = client.get("/both", x_api_key="a")
        assert answer.status == status
        assert answer.headers["ratelimit-policy"] == '"per-key";q=2;w=60, "requests";q=1;w=30'


def test_rules_see_bodies_and_handlers_get_them_whole(serve: Serve) -> None:
    policy = """
    [[rules]]
    name = "tenant"
    keys = "tenant:{body.tenant}"
    cost = "size(body.items)"
    quota = "5/m fixed_window"
    """
    client = serve(guarded(policy, body_bytes_max=2000))
    body = {"tenant": "acme", "items": [1, 2, 3]}
    answer = client.post("/echo", body)
    assert (answer.json["length"], answer.headers["ratelimit"]) == (len(json.dumps(body)), '"tenant";r=2;t=60')
    assert client.post("/echo", body).status == 429
    assert client.post("/echo", body | {"items": [1]}).status == 200
    long = body | {"text": "x" * 300_000}
    answer = client.post("/echo", long)
    assert answer.json == {"length": len(json.dumps(long))}
    assert answer.headers["ratelimit"] == '"tenant";r=0;t=60', "too long to be read, which costs all there is"
    assert client.post("/echo", long).status == 429
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/vnd.api+json"):
        other = {"tenant": kind, "items": [1]}
        assert client.post("/echo", other, content_type=kind).headers["ratelimit"] == '"tenant";r=4;t=60', kind
    assert client.post("/echo", body, content_type="image/png").status == 429, "counts as one that cannot be read"


UNREADABLE = [b'{"rows": 1e999}', b'{"rows": "\\ud800"}', b"[" * 128 + b"]" * 128, b"{", b"\xff", b'{"rows": NaN}']


def test_bodies_that_cannot_be_read_are_judged_whatever_they_say_they_are(serve: Serve) -> None:
    policy = """
    [[rules]]
    name = "rows"
    when = "body.rows > 100"
    keys = "all"
    quota = "1000/m fixed_window"
    """
    client = serve(guarded(policy))
    kinds: list[dict[str, str]] = [{}, {"content_type": "text/plain"}, {"content_type": "application/json"}]
    for headers in kinds:
        for body in [*UNREADABLE, b'{"rows": "200"}', b'{"rows": 200}']:
            answer = client.send("POST", "/echo", body, **headers)
            assert (answer.json["length"], "ratelimit" in answer.headers) == (len(body), True), (headers, body)
        for body in [b'{"rows": 100}', b"{}", b'{"rows": null}', b""]:
            assert client.send("POST", "/echo", body, **headers).limits == {}, (headers, body)
    assert "ratelimit" in client.send("POST", "/echo", b'{"rows": 1}', content_type="image/png").headers


def test_a_request_beyond_its_budget_is_denied_whole(serve: Serve) -> None:
    policy = """
    [[rules]]
    name = "expensive"
    when = "body.tags.exists(t, t == 'expensive')"
    keys = "all"
    quota = "5/m"
    """
    client = serve(guarded(policy, options=HttpOptions()))
    denied = client.post("/echo", {"tags": [0] * 30_000})
    assert (denied.status, denied.json["reason"]) == (429, "condition_budget")
    assert "retry-after" not in denied.headers
    assert client.post("/echo", {"tags": [0]}).limits == {}


def test_a_body_that_takes_long_is_not_waited_for(serve: Serve) -> None:
    policy = """
    [[rules]]
    name = "tenant"
    keys = "tenant:{body.tenant}"
    quota = "1/m"
    """
    app, asked = guarded(policy, body_wait=0.05), threading.Event()

    @app.post("/slow")
    async def slow(request: Request) -> Any:
        asked.set()
        return {"length": len(await request.body())}

    assert late_body(serve(app).port, b'{"tenant": "acme"}', asked) == {"length": 18}


def late_body(port: int, body: bytes, asked: threading.Event) -> Any:
    """Sends the rest of the body only when the handler is at work: nobody waits for it any more."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as connection:
        head = "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
        connection.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body[:5])
        assert asked.wait(TIMEOUT)
        connection.sendall(body[5:])
        response = http.client.HTTPResponse(connection)
        response.begin()
        # It is there and was not read: all such requests of the rule share a counter.
        assert response.getheader("ratelimit") == '"tenant";r=0;t=60'
        return json.loads(response.read())


def test_rules_see_who_is_calling(serve: Serve) -> None:
    policy = """
    [[rules]]
    name = "project"
    keys = "{identity.org}:{identity.project}"
    quota = "1/m"
    """
    client = serve(guarded(policy, identify=lambda request: (1, int(request.headers["x-project"]))))
    assert [client.get("/search", x_project=project).status for project in ("1", "1", "2")] == [200, 429, 200]


def test_claims_of_ones_own_choose_the_plan(serve: Serve) -> None:
    policy = """
    [[rules]]
    name = "user"
    keys = "{identity.user}"
    quota = "1/m"
    plans = { paid = "3/m" }
    """
    claims = {"ann": {"user": "ann", "plan": "paid"}, "bob": {"user": "bob"}}
    client = serve(guarded(policy, claims=lambda request: claims.get(request.headers["x-user"])))
    assert [client.get("/search", x_user="ann").status for _ in range(4)] == [200, 200, 200, 429]
    assert [client.get("/search", x_user="bob").status for _ in range(2)] == [200, 429]
    assert client.get("/search", x_user="eve").status == 200


def test_rules_see_the_peer_and_the_query(serve: Serve) -> None:
    policy = """
    [[rules]]
    name = "peer"
    keys = "{client.ip}:{query.q}"
    quota = "1/m"
    """
    client = serve(guarded(policy))
    assert [client.get(f"/search?q={q}").status for q in ("a%20b", "a+b", "c")] == [200, 429, 200]


def test_modes_of_the_environment_and_of_rules(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(guarded(PER_KEY.replace("quota", 'mode = "monitor"\nquota')))
    answers = [client.get("/search", x_api_key="a") for _ in range(3)]
    assert [answer.status for answer in answers] == [200] * 3
    assert answers[-1].headers["ratelimit"].startswith('"per-key";r=0')
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    assert client.get("/search", x_api_key="a").limits == {}


def test_monitor_mode_denies_nobody(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    app = guarded(PER_KEY)
    policies = Policies()
    policies.install(json.dumps(SENTIMENT), "json")
    limiter = KeyRateLimiter("sentiment", lambda request: "ann", policies=PolicyLimiter(None, policies))
    app.get("/keyed", dependencies=[Depends(limiter)])(lambda: None)
    client = serve(app)
    monkeypatch.setenv("RATE_LIMIT_MODE", "monitor")
    for path in ("/search", "/keyed"):
        answers = [client.get(path, x_api_key="premium") for _ in range(4)]
        assert 429 not in [answer.status for answer in answers]
        assert "r=0" in answers[-1].headers["ratelimit"]
    monkeypatch.delenv("RATE_LIMIT_MODE")
    assert client.get("/search", x_api_key="premium").status == 429


def test_a_policy_file_is_followed(tmp_path: pathlib.Path, serve: Serve) -> None:
    file = tmp_path / "api.toml"
    file.write_text(f'service = "api"\n{PER_KEY}')
    policies = Policies()
    watch = policies.watch_file(file)
    app = FastAPI()
    setup(app, policies=PolicyLimiter(Store.memory(), policies), service="api")
    client = serve(app)
    assert client.get("/", x_api_key="a").headers["ratelimit-policy"] == '"per-key";q=2;w=60'
    file.write_text(file.read_text().replace("2/m", "7/m"))
    wait_for(lambda: client.get("/", x_api_key="b").headers["ratelimit-policy"] == '"per-key";q=7;w=60')
    file.write_text("service = 7")
    wait_for(lambda: policies.status()[0]["refused"] > 0)
    assert client.get("/", x_api_key="c").headers["ratelimit-policy"] == '"per-key";q=7;w=60', "the last good one stays"
    watch.stop()


def test_policies_in_mongodb(mongodb: MongoServer, remote: Backend, serve: Serve) -> None:
    client_of_mongo: pymongo.MongoClient[Any] = pymongo.MongoClient(mongodb.url)
    with client_of_mongo as mongo:
        limits = mongo[f"web-{remote.name}"]["limits"]
        limits.insert_one(SENTIMENT)
        policies = Policies()
        watch = policies.watch_mongodb(
            mongodb.url, database=f"web-{remote.name}", collection="limits", services=["sentiment"], deadline=20
        )
        client = serve(sentiment(PolicyLimiter(remote.store(), policies)))
        corp = {"tenant_id": "client-corp", "language": "en"}
        assert [client.post("/analyze", corp).status for _ in range(4)] == [200, 200, 200, 429]
        other = {"tenant_id": "other", "language": "en"}
        assert [client.post("/analyze", other).status for _ in range(3)] == [200, 200, 429]
        change = {"$set": {"general_rate_limit": {"rpm": 9}, "last_updated": "2025-10-10T14:24:00Z"}}
        limits.update_one({"_id": "sentiment"}, change)
        watch.refresh()
        assert client.post("/analyze", other).status == 200
        watch.stop()


def test_rules_in_mongodb_at_the_door(mongodb: MongoServer, serve: Serve) -> None:
    rule = {"name": "per-key", "keys": "key:{header.x-api-key}", "quota": "2/m fixed_window"}
    client_of_mongo: pymongo.MongoClient[Any] = pymongo.MongoClient(mongodb.url)
    with client_of_mongo as mongo:
        documents = mongo["web-door"]["limits"]
        documents.insert_one({"_id": "api", "last_updated": "2025-10-10T14:23:00Z", "rules": [rule]})
        policies = Policies()
        watch = policies.watch_mongodb(
            mongodb.url, database="web-door", collection="limits", services=["api"], deadline=20
        )
        app = FastAPI()
        setup(app, policies=PolicyLimiter(Store.memory(), policies), service="api")
        client = serve(app)
        assert [client.get("/", x_api_key="a").status for _ in range(3)] == [404, 404, 429]
        changed = {"last_updated": "2025-10-10T14:24:00Z", "rules": [rule | {"quota": "9/m fixed_window"}]}
        documents.update_one({"_id": "api"}, {"$set": changed})
        watch.refresh()
        assert client.get("/", x_api_key="a").headers["ratelimit-policy"] == '"per-key";q=9;w=60'
        watch.stop()


async def sentiment_key(request: Request) -> str | None:
    """The key parser of a service: an API key, a tenant with a language, a user, an address."""
    body = await request.json()
    if request.headers.get("x-api-key") == "premium":
        return "apiKey:premium"
    if "tenant_id" in body and "language" in body:
        return f"tenant:{body['tenant_id']}:lang:{body['language']}"
    if "x-user" in request.headers:
        return f"user:{request.headers['x-user']}"
    return None


def sentiment(limiter: PolicyLimiter) -> FastAPI:
    app = FastAPI()
    setup(app, policies=limiter)

    @app.post("/analyze", dependencies=[Depends(KeyRateLimiter("sentiment", sentiment_key))])
    async def analyze(request: Request) -> Any:
        return await request.json()

    return app


def test_a_key_parser_finds_the_limits(store: Store, serve: Serve) -> None:
    policies = Policies()
    policies.install(json.dumps(SENTIMENT), "json")
    client = serve(sentiment(PolicyLimiter(store, policies)))
    corp = {"tenant_id": "client-corp", "language": "en"}
    answers = [client.post("/analyze", corp) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert answers[0].json == corp, "the handler reads the body again"
    assert "q=3;w=60" in answers[-1].headers["ratelimit-policy"]
    users = [client.post("/analyze", {}, x_user="ann").status for _ in range(3)]
    assert users == [200, 200, 429], "the general limit"
    nobody = client.post("/analyze", {})
    assert (nobody.status, nobody.limits) == (200, {})


def test_a_plain_key_parser_and_a_cost(serve: Serve) -> None:
    policies = Policies()
    policies.install(json.dumps(SENTIMENT), "json")
    app = FastAPI()
    limiter = KeyRateLimiter(
        "sentiment", lambda request: request.headers.get("x-user"), cost=2, policies=PolicyLimiter(None, policies)
    )

    @app.get("/", dependencies=[Depends(limiter)])
    async def index() -> None: ...

    client = serve(app)
    assert [client.get("/", x_user="ann").status for _ in range(2)] == [200, 429]
    with pytest.raises(ValueError, match="cost must be at least 1"):
        KeyRateLimiter("sentiment", str, cost=0)


def test_a_service_without_a_policy_is_not_limited(serve: Serve) -> None:
    client = serve(sentiment(PolicyLimiter(None, Policies())))
    assert client.post("/analyze", {}, x_user="ann").limits == {}


def test_a_service_needs_policies() -> None:
    with pytest.raises(ValueError, match="service: got one without policies"):
        setup(FastAPI(), service="api")


CONCURRENCY = """
[[rules]]
name = "at-once"
keys = "all"
quota = "1/m concurrency"
"""


def test_responses_stream_and_hold_their_place_until_they_end(store: Store, serve: Serve) -> None:
    app, go_on = guarded(CONCURRENCY, store), threading.Event()

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def chunks() -> AsyncIterator[bytes]:
            yield b"first"
            import asyncio

            await asyncio.to_thread(go_on.wait, TIMEOUT)
            yield b"last"

        return StreamingResponse(chunks())

    client = serve(app)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=TIMEOUT)) as connection:
        connection.request("GET", "/stream")
        response = connection.getresponse()
        assert response.read(5) == b"first", "before the last chunk is made"
        assert client.get("/search").status == 429
        go_on.set()
        assert response.read() == b"last"
    wait_for(lambda: client.get("/search").status == 200)


def test_a_place_is_given_back_if_the_handler_fails(serve: Serve) -> None:
    app = guarded(CONCURRENCY)

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("broken")

    client = serve(app)
    assert [client.get("/broken").status for _ in range(3)] == [500] * 3


async def test_what_is_no_request_passes_untouched() -> None:
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    middleware = RateLimitMiddleware(inner, Settings())
    for kind in ("lifespan", "another"):
        arguments: Any = ({"type": kind}, object(), object())
        await middleware(*arguments)
        assert seen.pop() == arguments
