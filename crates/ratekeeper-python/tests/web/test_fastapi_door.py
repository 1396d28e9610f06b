"""FastAPI: policies at the door, whatever the server says of a client, and whoever it is."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import ProjectRateLimiter, RateLimitMiddleware, Settings, setup
from web.conftest import Serve
from web.fastapi_site import messages_of
from web.web_servers import Client, run_python

# What the oldest Starlette imports is deprecated by now.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

PER_ADDRESS = """
service = "s"
[[rules]]
name = "per-address"
keys = "ip:{client.ip}"
quota = "2/h"
"""
PER_ORGANISATION = PER_ADDRESS.replace("ip:{client.ip}", "org:{identity.org}")


def guarded(policy: str, **options: Any) -> FastAPI:
    """An application with this policy at the door."""
    policies = Policies()
    policies.install(policy)
    app = FastAPI()
    setup(app, policies=PolicyLimiter(Store.memory(), policies), service="s", **options)

    @app.get("/users/{user}")
    async def user(user: str) -> None: ...

    return app


@pytest.mark.parametrize("policy", [PER_ADDRESS, PER_ADDRESS.replace("ip:{client.ip}", "all")])
def test_the_test_client_of_starlette_is_limited(policy: str) -> None:
    client = TestClient(guarded(policy))
    assert [client.get("/users/1").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize(
    "hosts",
    [
        # All that is no address is one.
        ["unknown", "testclient", "_hidden", "1.2.3.4.5", "", "\ud800"],
        ["1.2.3.4", "1.2.3.4:80", "1.2.3.4:81"],
        ["fe80::1", "fe80::1%eth0", "[fe80::1%2]:443"],
    ],
)
async def test_an_address_is_found_in_what_servers_say(hosts: list[str]) -> None:
    app = guarded(PER_ADDRESS.replace("2/h", f"{len(hosts)}/h"))

    async def status(host: str) -> int:
        return await status_of(app, client=(host, 1))

    assert [await status(host) for host in hosts] == [200] * len(hosts)
    assert [await status(host) for host in hosts] == [429] * len(hosts)
    assert await status("8.8.8.8") == 200


async def status_of(app: FastAPI, **scope: Any) -> int:
    """What an application answers to a request that a server describes like this."""

    async def described(inner: dict[str, Any], receive: Any, send: Any) -> None:
        await app({**inner, "path": "/users/1", **scope}, receive, send)

    status: int = (await messages_of(described, "/"))[0]["status"]  # type: ignore[arg-type]
    return status


def test_what_a_believed_field_says_is_no_failure(serve: Serve) -> None:
    client = serve(guarded(PER_ADDRESS), forwarded_allow_ips="*", proxy_headers=True)
    said = ["unknown", "fe80::1%eth0", "'; drop", "1.2.3.4:5", "unknown"]
    assert [client.get("/users/1", x_forwarded_for=text).status for text in said] == [200] * 4 + [429]


def of_method(request: Request) -> tuple[int, int] | None:
    """Needs more than a connection has."""
    return (1, 2) if request.method == "GET" and request.url.path.startswith("/users") else None


@pytest.mark.parametrize("options", [{"identify": of_method}, {"claims": lambda request: {"org": request.method}}])
def test_the_door_sees_a_request(serve: Serve, options: dict[str, Any]) -> None:
    client = serve(guarded(PER_ORGANISATION, **options))
    assert [client.get("/users/1").status for _ in range(3)] == [200, 200, 429]


def refusing(request: Request) -> tuple[int, int] | None:
    """Knows who it is, or refuses."""
    raise HTTPException(401, "who are you?", {"www-authenticate": "Key"})


def checked(client: Client) -> tuple[int, Any, str]:
    answer = client.get("/users/1")
    return answer.status, answer.json, answer.headers["www-authenticate"]


def test_whoever_refuses_is_answered_alike_at_the_door_and_behind_it(serve: Serve) -> None:
    behind = FastAPI()
    setup(behind, store=Store.memory(), identify=refusing)
    behind.get("/users/{user}", dependencies=[Depends(ProjectRateLimiter(1, 60))])(lambda: None)
    door = guarded(PER_ORGANISATION, identify=refusing)
    expected = (401, {"detail": "who are you?"}, "Key")
    assert checked(serve(behind)) == checked(serve(door)) == expected

    @door.exception_handler(HTTPException)
    async def handler(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"own": error.detail}, error.status_code, error.headers)

    assert checked(serve(door)) == (401, {"own": "who are you?"}, "Key")


async def test_what_fails_otherwise_fails() -> None:
    app = guarded(PER_ORGANISATION, identify=lambda request: {}["nobody"])
    with pytest.raises(KeyError):
        await messages_of(app, "/users/1")


@pytest.mark.parametrize(
    ("found", "told"), [("12", "'12'"), ((1, 2, 3), r"\(1, 2, 3\)"), (7, "int"), ({"org": 1, "project": 2}, "dict")]
)
@pytest.mark.parametrize("kind", ["door", "limiter"])
async def test_what_is_no_pair_is_told(found: Any, told: str, kind: str) -> None:
    identify: Callable[[Request], Any] = lambda request: found  # noqa: E731
    if kind == "door":
        app = guarded(PER_ORGANISATION, identify=identify)
    else:
        app = FastAPI()
        setup(app, store=Store.memory(), identify=identify)
        app.get("/users/{user}", dependencies=[Depends(ProjectRateLimiter(1, 60))])(lambda: None)
    with pytest.raises(TypeError, match=rf"identify: got {told}; expected \(organisation, project\), or None"):
        await messages_of(app, "/users/1")


async def somebody(request: Request) -> tuple[int, int]:
    return (1, 2)


class Somebody:
    async def __call__(self, request: Request) -> tuple[int, int]:
        return (1, 2)


@pytest.mark.parametrize("name", ["identify", "claims", "mode"])
@pytest.mark.parametrize("function", [somebody, Somebody()])
def test_async_functions_are_refused_where_nobody_awaits_them(name: str, function: Any) -> None:
    with pytest.raises(TypeError, match=f"{name}: expected a plain function, got one that is async"):
        setup(FastAPI(), store=Store.memory(), **{name: function})


async def test_applications_without_handlers_answer_too() -> None:
    async def plain(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("not reached")

    policies = Policies()
    policies.install(PER_ORGANISATION)
    settings = Settings(policies=PolicyLimiter(Store.memory(), policies), service="s", identify=refusing)
    start = (await messages_of(RateLimitMiddleware(plain, settings), "/"))[0]  # type: ignore[arg-type]
    assert start["status"] == 401


TRACED = """
import asyncio
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from web.fastapi_site import messages_of
from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import setup

provider, spans = TracerProvider(), InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
policies = Policies()
policies.install('''
service = "s"
[[rules]]
name = "all"
keys = "all"
quota = "1/h"
''')
app, inner = FastAPI(), FastAPI()
setup(app, policies=PolicyLimiter(Store.memory(), policies), service="s", mode="monitor")
app.get("/users/{user}/mail")(lambda: None)
app.mount("/tenants/{tenant}", inner)
inner.get("/items/{item}")(lambda: None)
for path in ("/first", "/users/ann@example.com/mail", "/tenants/ann/items/1", "/ann"):
    spans.clear()
    with trace.get_tracer("test").start_as_current_span("server"):
        asyncio.run(messages_of(app, path))
    # Newer versions of FastAPI make a span of their own.
    said = [span.attributes.get("ratelimit.over_limit") for span in spans.get_finished_spans()]
    print(*filter(None, said))
"""


def test_a_trace_is_told_the_endpoint_and_no_path() -> None:
    told = run_python(TRACED, PYTHONPATH=str(pathlib.Path(__file__).parents[1]))
    assert told.splitlines() == ["", "/users/{user}/mail", "/tenants/{tenant}/items/{item}", "no route"]
