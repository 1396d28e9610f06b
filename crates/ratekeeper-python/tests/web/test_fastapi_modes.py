"""Modes, traces and outages in FastAPI."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request
from servers import RedisServer, wait_for

from ratekeeper import Store
from ratekeeper.fastapi import PathRateLimiter, ProjectRateLimiter, get_rate_limit_mode, is_rate_limit_disabled, setup
from web.conftest import Serve
from web.web_servers import run_python


async def authenticate(request: Request) -> None:
    request.state.organization_id, request.state.project_id = 1, 2


def limited(limiter: Any, store: Store, **options: Any) -> FastAPI:
    app = FastAPI(dependencies=[Depends(authenticate)])
    setup(app, store=store, **options)

    @app.get("/search", dependencies=[Depends(limiter)])
    async def search() -> None: ...

    return app


@pytest.mark.parametrize("limiter", [ProjectRateLimiter, PathRateLimiter])
def test_the_mode_is_looked_up_with_every_request(
    store: Store, serve: Serve, monkeypatch: pytest.MonkeyPatch, limiter: Any
) -> None:
    client = serve(limited(limiter(1, 60), store))
    assert client.get("/search").status == 200
    monkeypatch.setenv("RATE_LIMIT_MODE", "monitor")
    watched = client.get("/search")
    assert (watched.status, watched.headers["ratelimit"][:14]) == (200, '"requests";r=0')
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    assert (client.get("/search").status, client.get("/search").limits) == (200, {})
    monkeypatch.setenv("RATE_LIMIT_MODE", "on")
    assert client.get("/search").status == 429


def test_nothing_is_counted_when_it_is_off(store: Store, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(limited(ProjectRateLimiter(1, 60), store))
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    assert [client.get("/search").status for _ in range(3)] == [200] * 3
    monkeypatch.setenv("RATE_LIMIT_MODE", "on")
    assert [client.get("/search").status for _ in range(2)] == [200, 429]


def test_a_function_can_say_the_mode(serve: Serve) -> None:
    modes: list[Any] = ["off", "monitor", None, "on"]
    client = serve(limited(ProjectRateLimiter(1, 60), Store.memory(), mode=lambda: modes.pop(0)))
    assert [client.get("/search").status for _ in range(4)] == [200, 200, 429, 429]


def test_a_wrong_mode_enforces_and_is_told_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RATE_LIMIT_MODE", "maybe-so")
    client = serve(limited(ProjectRateLimiter(1, 60), Store.memory()))
    with caplog.at_level(logging.ERROR, "ratekeeper"):
        assert [client.get("/search").status for _ in range(3)] == [200, 429, 429]
    (record,) = caplog.records
    assert "RATE_LIMIT_MODE" in record.getMessage()
    assert "maybe-so" in record.getMessage()


@pytest.mark.parametrize(("mode", "disabled"), [("on", False), ("monitor", True), ("off", True)])
def test_limiters_of_ones_own_can_ask(monkeypatch: pytest.MonkeyPatch, mode: str, disabled: bool) -> None:
    assert (get_rate_limit_mode(), is_rate_limit_disabled()) == ("on", False)
    monkeypatch.setenv("RATE_LIMIT_MODE", mode)
    assert (get_rate_limit_mode(), is_rate_limit_disabled()) == (mode, disabled)


# The requests go straight into the application: these processes have no other purpose than their trace.
TRACED = """
import asyncio
from fastapi import Depends, FastAPI
from ratekeeper import Store
from ratekeeper.fastapi import PathRateLimiter, setup

app = FastAPI()
setup(app, store=Store.memory(), mode="monitor")
handled = []

@app.get("/users/{user}", dependencies=[Depends(PathRateLimiter(1, 60))])
async def users(user: str):
    handled.append(user)

async def request():
    scope = {"type": "http", "method": "GET", "path": "/users/7", "raw_path": b"/users/7", "query_string": b"",
             "headers": [], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "scheme": "http", "root_path": "",
             "http_version": "1.1"}
    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b""}]
    async def receive():
        return messages.pop()
    async def send(message):
        pass
    await app(scope, receive, send)
"""


def test_monitor_mode_tags_the_root_span_of_datadog() -> None:
    told = run_python(
        "from ddtrace.trace import tracer\n" + TRACED + """
for _ in range(2):
    with tracer.trace("web.request") as root:
        with tracer.trace("inner") as inner:
            asyncio.run(request())
        print(root.get_tag("ratelimit.over_limit"), inner.get_tag("ratelimit.over_limit"))
assert handled == ["7", "7"]
""",
        DD_TRACE_ENABLED="true", DD_INSTRUMENTATION_TELEMETRY_ENABLED="false", DD_REMOTE_CONFIGURATION_ENABLED="false",
        DD_TRACE_STARTUP_LOGS="false",
    )
    assert told.split("\n")[:2] == ["None None", "/users/{user} None"]


def test_monitor_mode_tags_the_span_of_the_request_in_opentelemetry() -> None:
    told = run_python(
        """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
provider, spans = TracerProvider(), InMemorySpanExporter()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("test")
""" + TRACED + """
@app.middleware("http")
async def deeper(request, call_next):
    with tracer.start_as_current_span("inner"):
        return await call_next(request)

# A middleware that was added later stands further out, so ours again around it.
setup(app, store=Store.memory(), mode="monitor")

async def server(scope, receive, send):
    with tracer.start_as_current_span("server", kind=trace.SpanKind.SERVER):
        await plain(scope, receive, send)

plain, app = app, server
for _ in range(2):
    spans.clear()
    asyncio.run(request())
    found = [span for span in spans.get_finished_spans() if "ratelimit.over_limit" in span.attributes]
    # Newer versions of FastAPI make a server span of their own, within that of the server.
    print([(span.kind.name, span.attributes["ratelimit.over_limit"]) for span in found])
assert handled == ["7", "7"]
"""
    )
    assert told.splitlines() == ["[]", "[('SERVER', '/users/{user}')]"]


def test_neither_is_required_nor_imported() -> None:
    run_python("import sys\n" + TRACED + """
asyncio.run(request()); asyncio.run(request())
assert handled == ["7", "7"]
assert not {"ddtrace", "django", "limits"} & set(sys.modules), sorted(sys.modules)
""")


def test_a_tracer_that_fails_fails_no_request() -> None:
    run_python("""
import sys, types
broken = sys.modules["ddtrace"] = types.ModuleType("ddtrace")
class Tracer:
    def current_root_span(self):
        raise RuntimeError("no")
broken.tracer = Tracer()
""" + TRACED + """
asyncio.run(request()); asyncio.run(request())
assert handled == ["7", "7"]
""")


def outage_of(server: RedisServer) -> Store:
    store = Store.redis(server.url, deadline=5.0, breaker_consecutive=1)
    store.ping()
    server.kill()
    return store


def test_an_outage_lets_requests_pass(own_server: RedisServer, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(1, 60), outage_of(own_server)))
    assert [(a.status, a.limits) for a in (client.get("/search") for _ in range(3))] == [(200, {})] * 3


class WithoutOrganisationOverrides(ProjectRateLimiter):
    def make_org_override_key(self, request: Request) -> str | None:
        return None


def test_an_outage_while_overrides_are_looked_for(own_server: RedisServer, serve: Serve) -> None:
    store = outage_of(own_server)
    assert serve(limited(WithoutOrganisationOverrides(1, 60), store)).get("/search").status == 200
    assert serve(limited(WithoutOrganisationOverrides(1, 60, on_outage="deny"), store)).get("/search").status == 503


@pytest.mark.parametrize("where", ["limiter", "application"])
def test_an_outage_can_deny(own_server: RedisServer, serve: Serve, where: str) -> None:
    store = outage_of(own_server)
    if where == "limiter":
        app = limited(ProjectRateLimiter(1, 60, on_outage="deny"), store)
    else:
        app = limited(ProjectRateLimiter(1, 60), store, on_outage="deny")
    denied = serve(app).get("/search")
    assert (denied.status, denied.json) == (503, {"detail": "Rate limits could not be checked. Try again later."})
    assert denied.headers["retry-after"] == "1"


def test_an_outage_can_count_here(own_server: RedisServer, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(2, 60, on_outage="local"), outage_of(own_server)))
    assert [client.get("/search").status for _ in range(3)] == [200, 200, 429]


def test_limits_hold_again_after_an_outage(own_server: RedisServer, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(1, 600), outage_of(own_server)))
    assert client.get("/search").limits == {}
    own_server.restart()
    wait_for(lambda: client.get("/search").status == 429)
