"""Django: the decorator and the middleware, under ASGI and WSGI."""

from __future__ import annotations

import concurrent.futures
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Backend
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.views import View
from servers import RedisServer, wait_for

from ratekeeper import Store
from ratekeeper.django import RateLimitExceeded, RateLimitMiddleware, rate_limit, store_named
from ratekeeper.overrides import set_org_rate_limit_override, set_rate_limit_override
from web import django_site
from web.web_servers import Client, asgi_server, program, run_python, wsgi_server

DETAIL = {"detail": "Rate limit exceeded. Try again later."}


@pytest.fixture(params=["asgi", "wsgi"])
def kind(request: pytest.FixtureRequest) -> str:
    """Either way of serving."""
    return str(request.param)


@pytest.fixture
def site(kind: str, store: Store) -> Iterator[Client]:
    """The site on a store of every kind, served either way."""
    yield from served(kind, store)


@pytest.fixture
def small_site(kind: str) -> Iterator[Client]:
    """The site in memory, served either way."""
    yield from served(kind, Store.memory())


def served(kind: str, store: Store, **settings: Any) -> Iterator[Client]:
    with override_settings(RATELIMIT_STORES={"default": store, "other": "memory"}, **settings):
        if kind == "asgi":
            with asgi_server(get_asgi_application(), lifespan="off") as client:
                yield client
        else:
            with wsgi_server(get_wsgi_application()) as client:
                yield client


@pytest.mark.parametrize("view", ["search", "asearch"])
def test_a_project_has_its_own_limit_on_every_endpoint(site: Client, view: str) -> None:
    first, second, third = (site.get(f"/{view}", x_project="1:2") for _ in range(3))
    assert (first.status, second.status) == (200, 200)
    assert first.limits == {"ratelimit-policy": '"requests";q=2;w=60', "ratelimit": '"requests";r=1;t=60'}
    assert (third.status, third.json) == (429, DETAIL)
    assert third.headers["content-type"] == "application/json"
    assert third.headers["ratelimit-policy"] == '"requests";q=2;w=60'
    assert third.headers["ratelimit"].startswith('"requests";r=0;t=')
    assert 0 < int(third.headers["retry-after"]) <= 60
    assert site.get(f"/{view}", x_project="1:3").status == 200
    assert site.get(f"/api/v1/datasets/7/{view}", x_project="1:2").json == {"dataset": 7}
    assert site.get(f"/{view}").limits == {}, "nobody is not limited"
    assert site.get("/up").limits == {}


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/search", "/search"),
        ("/asearch", "/asearch"),
        ("/api/v1/datasets/7/search", "/api/v1/datasets/<int:dataset_id>/search"),
        ("/api/v1/datasets/7/asearch", "/api/v1/datasets/<int:dataset_id>/asearch"),
        ("/old/7", r"/^old/(?P<dataset_id>\d+)$"),
        ("/named", "custom_name"),
        ("/classy", "/classy:get"),
        ("/aclassy", "/aclassy"),
        ("/ninja/search/7?q=x", "/ninja/search/<item>"),
    ],
)
def test_the_endpoint_is_the_url_pattern(remote: Backend, kind: str, path: str, endpoint: str) -> None:
    for client in served(kind, remote.store()):
        answer = client.get(path, x_project="1:42")
        assert (answer.status, bool(answer.limits)) == (200, True)
    keys: list[str] = remote.client().keys("ratelimit:*")  # type: ignore[assignment]
    assert [key.replace("<int:item>", "<item>") for key in keys] == [f"ratelimit:{endpoint}:1:42"]
    assert remote.client().get(keys[0]) == "1"


async def test_overrides(store: Store) -> None:
    await set_org_rate_limit_override(store, 1, "/search", max_requests=10, expiry=30)
    await set_rate_limit_override(store, 1, 2, "/search", max_requests=20, expiry=15)
    for client in served("wsgi", store):
        policies = [client.get("/search", x_project=p).headers["ratelimit-policy"] for p in ("1:2", "1:3", "2:2")]
        assert policies == ['"requests";q=20;w=15', '"requests";q=10;w=30', '"requests";q=2;w=60']


def test_stores_have_names(redis_backend: Backend) -> None:
    other = redis_backend.store(prefix="other:")
    settings = {"RATELIMIT_STORES": {"default": "memory", "other": other}}
    with override_settings(**settings), wsgi_server(get_wsgi_application()) as client:
        assert [client.get("/elsewhere", x_project="1:2").status for _ in range(2)] == [200, 429]
        assert client.get("/elsewhere", x_project="1:2").headers["ratelimit-policy"] == '"elsewhere";q=1;w=60'
    assert redis_backend.client().keys("*ratelimit*") == ["other:ratelimit:/elsewhere:1:2"]


def test_stores_by_url_and_by_options(redis_backend: Backend) -> None:
    assert redis_backend.server is not None
    url = redis_backend.server.url
    stores = {"memory": "memory", "url": url, "options": {"url": url, "prefix": "x:", "deadline": 5.0}}
    with override_settings(RATELIMIT_STORES=stores):
        assert [store_named(name).kind for name in stores] == ["memory", "redis", "redis"]
        assert store_named("url") is store_named("url")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"RATELIMIT_STORES": {"first": "memory"}}, "RATELIMIT_STORES: got 'first'; expected a store 'default'"),
        ({"RATELIMIT_STORES": {}}, "RATELIMIT_STORES: got none; expected a store 'default'"),
        ({"RATELIMIT_STORES": {"default": "mysql://x"}}, r"RATELIMIT_STORES\['default'\]: "),
        ({"RATELIMIT_STORES": {"default": {"url": "redis://x", "prefx": ""}}}, r"STORES\['default'\]: .*prefx"),
        ({"RATELIMIT_MODE": "maybe"}, "RATELIMIT_MODE: got 'maybe'; expected one of None, 'on', 'monitor', 'off'"),
        ({"RATELIMIT_ON_OUTAGE": "pray"}, "RATELIMIT_ON_OUTAGE: got 'pray'"),
        ({"RATELIMIT_STORES": None}, "RATELIMIT_STORES: expected a dictionary from names to stores, got NoneType"),
        ({"RATELIMIT_PROJECT": "nowhere.project_of"}, "RATELIMIT_PROJECT: No module named 'nowhere'"),
        ({"RATELIMIT_PROJECT": 3}, "RATELIMIT_PROJECT: got 3; expected a function, or its dotted name"),
        ({"RATELIMIT_RETRY_AFTER_SPREAD": 101}, "RATELIMIT_RETRY_AFTER_SPREAD: retry_after_spread: got 101"),
        ({"RATELIMIT_BODY": "html"}, "RATELIMIT_BODY: got 'html'; expected one of 'detail', 'problem'"),
    ],
)
def test_wrong_settings_are_told(settings: dict[str, Any], problem: str) -> None:
    request = RequestFactory().get("/", headers={"x-project": "1:2"})
    right = {"RATELIMIT_STORES": {"default": "memory"}}
    with override_settings(**right | settings), pytest.raises(ImproperlyConfigured, match=problem):
        for _ in range(3):
            try:
                django_site.search(request)
            except RateLimitExceeded:
                RateLimitMiddleware(lambda request: HttpResponse())(request)
    # Nor does a server start that has the middleware; which stores views want is not known then.
    if "first" not in problem and "none" not in problem:
        with override_settings(**right | settings), pytest.raises(ImproperlyConfigured, match=problem):
            get_wsgi_application()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0,), "max_requests must be at least 1"), ((1, 0), "expiry must be at least 1 second")],
)
def test_values_below_one_are_refused(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}$"):
        rate_limit(*arguments)


def test_wrong_words_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="rule `é`: "):
        rate_limit(5, policy_name="é")
    with pytest.raises(ValueError, match="on_outage: got \"pray\""):
        rate_limit(5, on_outage="pray")  # type: ignore[arg-type]


def test_a_wrong_mode_enforces(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise RuntimeError("no settings today")

    with override_settings(RATELIMIT_MODE=broken):
        for client in served("wsgi", Store.memory()):
            assert [client.get("/keyed", x_key="a").status for _ in range(2)] == [200, 429]
    assert "rate limits are enforced: the function for the mode failed" in caplog.text


def test_fields_accumulate_also_on_denials(site: Client) -> None:
    for status in (200, 429):
        answer = site.get("/twice", x_project="1:2")
        assert answer.status == status
        assert answer.headers["ratelimit-policy"] == '"requests";q=5;w=60, "inner";q=1;w=30'
    assert re.fullmatch(r'"requests";r=3;t=\d+, "inner";r=0;t=\d+', answer.headers["ratelimit"])


def test_every_response_tells_whoever_made_it(small_site: Client) -> None:
    for path, status in [("/stream", 200), ("/broken", 500)]:
        answer = small_site.get(path, x_project="1:2")
        assert (answer.status, answer.headers["ratelimit-policy"]) == (status, '"requests";q=9;w=60'), path


def test_views_can_catch_the_denial(small_site: Client) -> None:
    assert small_site.get("/catching", x_project="1:2").body == b"inner"
    answer = small_site.get("/catching", x_project="1:2")
    assert (answer.status, answer.body) == (420, b"Rate limit exceeded. Try again later.: 1/1 True")
    assert answer.headers["ratelimit-policy"] == '"requests";q=1;w=60'
    assert "retry-after" not in answer.headers


def test_the_exception_has_the_result() -> None:
    @rate_limit(1, 60)
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    request = RequestFactory().get("/", headers={"x-project": "1:2"})
    with override_settings(RATELIMIT_STORES={"default": "memory"}):
        assert view(request).status_code == 200
        with pytest.raises(RateLimitExceeded) as caught:
            view(request)
    result = caught.value.result
    assert result is not None
    assert (result.is_over_limit, result.max_requests, result.remaining) == (True, 1, 0)
    assert result.to_headers() == {"RateLimit-Limit": "1", "RateLimit-Remaining": "0", "RateLimit-Reset": "60"}
    assert caught.value.response().status_code == 429


@pytest.mark.parametrize(
    ("settings", "prefix"),
    [({"RATELIMIT_LEGACY_HEADERS": True}, "ratelimit"), ({"RATELIMIT_USE_X_PREFIX": True}, "x-ratelimit")],
)
def test_legacy_fields_by_switch(kind: str, settings: dict[str, Any], prefix: str) -> None:
    for client in served(kind, Store.memory(), **settings):
        answers = [client.get("/search", x_project="1:2") for _ in range(3)]
        assert answers[0].headers[f"{prefix}-remaining"] == "1"
        assert (answers[2].status, answers[2].headers[f"{prefix}-remaining"]) == (429, "0")
        assert (answers[2].headers[f"{prefix}-limit"], answers[2].headers[f"{prefix}-reset"]) == ("2", "60")
        assert "ratelimit-policy" in answers[2].headers


def test_their_reset_counts_from_1970_by_switch(kind: str) -> None:
    settings = {"RATELIMIT_USE_X_PREFIX": True, "RATELIMIT_LEGACY_RESET": "epoch"}
    for client in served(kind, Store.memory(), **settings):
        before = time.time()
        reset = int(client.get("/search", x_project="1:2").headers["x-ratelimit-reset"])
        assert before < reset < time.time() + 62


def test_problem_documents_by_switch(kind: str) -> None:
    for client in served(kind, Store.memory(), RATELIMIT_BODY="problem"):
        denied = [client.get("/search", x_project="1:2") for _ in range(3)][-1]
        assert (denied.status, denied.headers["content-type"]) == (429, "application/problem+json")
        assert denied.json["violated-policies"] == ["requests"]


@pytest.mark.parametrize("view", ["keyed", "akeyed"])
def test_other_keys(site: Client, view: str) -> None:
    assert [site.get(f"/{view}", x_key=key).status for key in ("a", "a", "b")] == [200, 429, 200]
    assert site.get(f"/{view}").limits == {}


@pytest.mark.parametrize("path", ["/classy", "/aclassy", "/limited-classy", "/decorated-classy"])
def test_classes_of_views(small_site: Client, path: str) -> None:
    assert [small_site.get(path, x_project="1:2").status for _ in range(2)] == [200, 429]


def test_methods_without_method_decorator_are_told() -> None:
    class Wrong(View):
        @rate_limit(1)
        def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    with pytest.raises(TypeError, match=r"Wrong\.get got Wrong first; expected a request .*method_decorator"):
        Wrong.as_view()(RequestFactory().get("/"))


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("path", ["/ninja/search/7?q=x", "/ninja/asearch/7", "/ninja/chained"])
def test_operations_of_ninja(kind: str, path: str, debug: bool) -> None:
    for client in served(kind, Store.memory(), DEBUG=debug):
        first, second = (client.get(path, x_project="1:2") for _ in range(2))
        assert first.status == 200
        assert first.headers["ratelimit"] == '"requests";r=0;t=60'
        assert (second.status, second.json) == (429, DETAIL)
        assert second.headers["ratelimit-policy"] == '"requests";q=1;w=60'
        assert second.headers["retry-after"] == "60"
        assert client.get("/ninja/search/word", x_project="1:2").status == 422


def test_operations_of_ninja_keep_their_parameters() -> None:
    operation = django_site.api.get_openapi_schema()["paths"]["/ninja/search/{item}"]["get"]
    assert [parameter["name"] for parameter in operation["parameters"]] == ["item", "q"]


@pytest.mark.parametrize("view", ["search", "asearch"])
def test_modes(site: Client, monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    assert [site.get(f"/{view}", x_project="1:2").limits for _ in range(3)] == [{}] * 3
    monkeypatch.setenv("RATE_LIMIT_MODE", "monitor")
    watched = [site.get(f"/{view}", x_project="1:2") for _ in range(3)]
    assert [answer.status for answer in watched] == [200] * 3
    assert watched[-1].headers["ratelimit"].startswith('"requests";r=0')
    monkeypatch.setenv("RATE_LIMIT_MODE", "on")
    assert site.get(f"/{view}", x_project="1:2").status == 429


def test_modes_by_settings() -> None:
    modes: list[Any] = ["off", "on", "monitor", None]
    with override_settings(RATELIMIT_MODE=lambda: modes.pop(0)):
        for client in served("wsgi", Store.memory()):
            assert [client.get("/keyed", x_key="a").status for _ in range(4)] == [200, 200, 200, 429]


@pytest.mark.parametrize("view", ["search", "asearch"])
def test_monitor_mode_tags_the_trace(view: str) -> None:
    told = run_python(
        f"""
from ddtrace.trace import tracer
import asyncio, inspect
import django_site
from django.test import RequestFactory
from ratekeeper.django import RateLimitMiddleware
for _ in range(3):
    with tracer.trace("web.request") as root, tracer.trace("inner"):
        request = RequestFactory().get("/", headers={{"x-project": "1:2"}})
        result = RateLimitMiddleware(django_site.{view})(request)
        response = asyncio.run(result) if inspect.isawaitable(result) else result
        assert response.status_code == 200
        print(root.get_tag("ratelimit.over_limit"))
""",
        RATE_LIMIT_MODE="monitor", DD_INSTRUMENTATION_TELEMETRY_ENABLED="false",
        DD_REMOTE_CONFIGURATION_ENABLED="false", DD_TRACE_STARTUP_LOGS="false",
    )
    assert told.split() == ["None", "None", f"django_site.{view}"], "without a resolved URL, the view's name"


@pytest.mark.parametrize("view", ["search", "asearch"])
def test_outages(own_server: RedisServer, kind: str, view: str) -> None:
    store = Store.redis(own_server.url, deadline=5.0)
    store.ping()
    own_server.kill()
    for client in served(kind, store):
        answer = client.get(f"/{view}", x_project="1:2")
        assert (answer.status, answer.limits) == (200, {})
        denied = client.get("/strict", x_project="1:2")
        assert (denied.status, denied.headers["retry-after"]) == (503, "1")
        assert denied.json == {"detail": "Rate limits could not be checked. Try again later."}
    with override_settings(RATELIMIT_MODE="monitor"):
        for client in served(kind, store):
            assert client.get("/strict", x_project="1:2").status == 200, "monitor mode denies nobody"
    with override_settings(RATELIMIT_ON_OUTAGE="local"):
        for client in served(kind, store):
            assert [client.get(f"/{view}", x_project="1:2").status for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("view", ["keyed", "asearch"])
def test_many_at_once(site: Client, view: str) -> None:
    limit = 1 if view == "keyed" else 2
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        answers = pool.map(lambda _: site.get(f"/{view}", x_key="a", x_project="1:2").status, range(50))
    assert sorted(answers) == [200] * limit + [429] * (50 - limit)


def admitted_by_processes(client: Client, path: str, pool: concurrent.futures.Executor) -> list[int]:
    """What many requests get at once, when more than one process is there to answer them."""
    workers: set[bytes] = set()

    def several() -> bool:
        workers.update(pool.map(lambda _: client.get("/up").body, range(20)))
        return len(workers) > 1

    wait_for(several)
    return sorted(pool.map(lambda _: client.get(path, x_project="1:2").status, range(60)))


GUNICORN = ("-b", "127.0.0.1:{port}", "--workers", "3", "--log-level", "error")
UVICORN = ("django_site:asgi", "--port", "{port}", "--workers", "2", "--lifespan", "off", "--log-level", "error")


@pytest.mark.parametrize("preload", [(), ("--preload",)])
def test_processes_that_fork_share_their_limits(remote: Backend, preload: tuple[str, ...]) -> None:
    assert remote.server is not None
    served_by = program("gunicorn", *GUNICORN, *preload, "django_site:wsgi", SITE_STORE=remote.server.url)
    with served_by as client, concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert admitted_by_processes(client, "/search", pool) == [200, 200] + [429] * 58


def test_workers_of_uvicorn_share_their_limits(remote: Backend) -> None:
    assert remote.server is not None
    served_by = program("uvicorn", *UVICORN, SITE_STORE=remote.server.url)
    with served_by as client, concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert admitted_by_processes(client, "/asearch", pool) == [200, 200] + [429] * 58
