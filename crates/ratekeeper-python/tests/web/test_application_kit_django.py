"""Sites on Application Kit that change their imports alone: how they start, decide, count and tell."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from conftest import DEADLINE, Backend
from web import django_site  # noqa: F401 (configures Django, before it is used)
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from ratekeeper import Store
from ratekeeper.application_kit import configure
from ratekeeper.application_kit.django.middlewares import ApplicationKitApiMiddleware
from ratekeeper.application_kit.django.ratelimit import rate_limit
from ratekeeper.django import _settings
from web import kit_django
from web.kit_script import TheirScript
from web.web_servers import Client, asgi_server, run_python, wsgi_server

MIDDLEWARE = "ratekeeper.application_kit.django.middlewares.ApplicationKitApiMiddleware"
WHO = "1:42"


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from ratekeeper.application_kit import _connections

    monkeypatch.setattr(_settings, "_sends_legacy", False)
    _settings.http_options.cache_clear()
    yield
    _settings.http_options.cache_clear()
    configure(options={})
    _connections._sources.clear()
    _connections._opened.clear()


def served(kind: str, **settings: Any) -> Iterator[Client]:
    said = {
        "MIDDLEWARE": [MIDDLEWARE], "ROOT_URLCONF": "web.kit_django", "RATELIMIT_STORES": {}, "RATELIMIT_PROJECT": None,
    }
    with override_settings(**{**said, **settings}):
        if kind == "asgi":
            with asgi_server(get_asgi_application(), lifespan="off") as client:
                yield client
        else:
            with wsgi_server(get_wsgi_application()) as client:
                yield client


@pytest.fixture(params=["asgi", "wsgi"])
def site(request: pytest.FixtureRequest, redis_backend: Backend) -> Iterator[Client]:
    """The documents' site on a real Redis, either way."""
    assert redis_backend.server is not None
    configure(redis={"ratelimit": redis_backend.server.url}, options={"deadline": DEADLINE})
    yield from served(request.param)


@pytest.fixture
def memory() -> Iterator[Client]:
    """The same in memory."""
    configure(redis={"ratelimit": Store.memory()})
    yield from served("wsgi")


def database(backend: Backend, number: int) -> redis.Redis:
    assert backend.server is not None
    return redis.Redis(port=backend.server.port, db=number, decode_responses=True)


# The handler is all that a server imports: nobody has loaded the URLs before it.
STARTED = """
import django
from django.conf import settings
settings.configure(
    ALLOWED_HOSTS=["*"], MIDDLEWARE=["{middleware}"], ROOT_URLCONF="{urls}", SECRET_KEY="x", USE_TZ=True,
)
from django.core.{kind} import get_{kind}_application
get_{kind}_application()
import sys
print("{urls}" in sys.modules)
"""


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
@pytest.mark.parametrize("middleware", [MIDDLEWARE, "ratekeeper.django.RateLimitMiddleware"])
def test_a_site_whose_imports_changed_starts(kind: str, middleware: str) -> None:
    code = STARTED.format(kind=kind, middleware=middleware, urls="kit_django")
    assert run_python(code, RATEKEEPER_REDIS_RATELIMIT="redis://127.0.0.1:1") == "True\n"


def test_a_site_without_limits_needs_no_redis() -> None:
    assert run_python(STARTED.format(kind="wsgi", middleware=MIDDLEWARE, urls="kit_no_limits")) == "True\n"


def test_a_site_whose_redis_nobody_knows_does_not_start() -> None:
    with override_settings(ROOT_URLCONF="web.kit_django", RATELIMIT_STORES={}, MIDDLEWARE=[MIDDLEWARE]):
        with pytest.raises(ImproperlyConfigured, match="nothing says where 'ratelimit' is: set RATEKEEPER_REDIS_RATELIMIT="):
            ApplicationKitApiMiddleware(lambda request: HttpResponse())


EXAMPLES = [
    ("/my", "/my"),
    ("/async", "/async"),
    ("/named", "custom_name"),
    ("/api/v1/datasets/7/search", "/api/v1/datasets/<int:dataset_id>/search"),
    ("/shinobi/search", "/shinobi/search"),
]


@pytest.mark.parametrize(("path", "endpoint"), EXAMPLES)
def test_the_examples_decide_and_count_as_the_script(
    redis_backend: Backend, site: Client, path: str, endpoint: str
) -> None:
    with database(redis_backend, 0) as ours, database(redis_backend, 1) as theirs:
        script = TheirScript(theirs)
        for client in (ours, theirs):
            client.hset(f"ratelimit_override:{endpoint}:1:42", mapping={"max_requests": "3", "expiry": "120"})
            client.hset(f"ratelimit_org_override:{endpoint}:1", mapping={"max_requests": "2", "expiry": "30"})
        for who, asked in [("1:42", 5), ("1:43", 4), ("2:42", 3)]:
            organisation, project = map(int, who.split(":"))
            key = f"ratelimit:{endpoint}:{who}"
            for _ in range(asked):
                answer = site.get(path, x_project=who)
                over, count, ttl, limit, window = script.check(endpoint, organisation, project, 100, 60)
                assert answer.status == (429 if over else 200)
                assert ours.get(key) == theirs.get(key)
                assert abs(ours.ttl(key) - ttl) <= 2
                assert answer.headers["ratelimit-policy"] == f'"requests";q={limit};w={window}'
                assert answer.headers["ratelimit-limit"] == str(limit)
                assert answer.headers["ratelimit-remaining"] == str(limit - count)
                if over:
                    assert answer.json == {"detail": "Rate limit exceeded. Try again later."}
        assert sorted(ours.keys("ratelimit:*")) == sorted(theirs.keys("ratelimit:*"))


def test_methods_of_a_class_count_in_one_counter(redis_backend: Backend, site: Client) -> None:
    with database(redis_backend, 0) as ours, database(redis_backend, 1) as theirs:
        script = TheirScript(theirs)
        for method in ("GET", "POST", "GET", "POST", "GET"):
            answer = site.send(method, "/both", None, x_project=WHO)
            over = script.check("/both", 1, 42, 100 if method == "GET" else 3, 60)[0]
            assert answer.status == (429 if over else 200)
            assert ours.get("ratelimit:/both:1:42") == theirs.get("ratelimit:/both:1:42")
        assert sorted(ours.keys("*")) == sorted(theirs.keys("*"))


def test_two_limits_of_one_counter_are_told_and_not_refused(caplog: pytest.LogCaptureFixture) -> None:
    configure(redis={"ratelimit": Store.memory()})

    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    with caplog.at_level(logging.WARNING, "ratekeeper"):
        rate_limit(10, 60, endpoint_name="twice")(rate_limit(20, 60, endpoint_name="twice")(view))
    (told,) = [record.getMessage() for record in caplog.records if "twice" in record.getMessage()]
    assert told.startswith("twice: two limits by project, 20/min fixed_window and 10/min fixed_window, count in one counter")


@pytest.mark.parametrize(("settings", "prefix"), [({}, "ratelimit"), ({"RATELIMIT_USE_X_PREFIX": True}, "x-ratelimit")])
def test_legacy_fields_are_those_of_the_last_policy(settings: Any, prefix: str) -> None:
    configure(redis={"ratelimit": Store.memory()})
    for client in served("wsgi", **settings):
        answer = client.get("/two", x_project=WHO)
        assert answer.headers["ratelimit-policy"] == '"requests";q=5;w=60, "second";q=100;w=30'
        told = [answer.headers[f"{prefix}-{name}"] for name in ("limit", "remaining", "reset")]
        assert told == ["100", "99", "30"]
        assert ("ratelimit-limit" in answer.headers) == (prefix == "ratelimit")


def test_legacy_fields_can_be_switched_off_and_say_instants() -> None:
    configure(redis={"ratelimit": Store.memory()})
    for client in served("wsgi", RATELIMIT_LEGACY_HEADERS=False):
        assert "ratelimit-limit" not in client.get("/two", x_project=WHO).headers
    for client in served("wsgi", RATELIMIT_LEGACY_RESET="epoch"):
        assert int(client.get("/two", x_project=WHO).headers["ratelimit-reset"]) > 1_000_000_000


def test_nobody_is_not_limited(memory: Client) -> None:
    assert memory.get("/my").limits == {}
    assert kit_django.urlpatterns, "the site is that of the documents"
