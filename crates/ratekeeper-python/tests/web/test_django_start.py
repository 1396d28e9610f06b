"""Django: which limits share a counter, and mistakes that are told before there are requests."""

from __future__ import annotations

import io
import logging
import types
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View

from ratekeeper import ManualClock, Store
from ratekeeper.django import RateLimitExceeded, RateLimitMiddleware, _checks, rate_limit
from web import django_site  # noqa: F401 (configures Django)

BY_ADDRESS: Any = {"key": lambda request: request.META["REMOTE_ADDR"]}
SLIDING: Any = {"algorithm": "sliding_window"}
WHO = {"x-project": "1:2"}


def answering(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@pytest.fixture
def site() -> Iterator[Any]:
    """Makes a site of some URL patterns, and a client of it."""
    settings: list[Any] = []

    def make(*patterns: Any, clock: ManualClock | None = None, **options: Any) -> Client:
        urls: Any = types.ModuleType("urls_of_a_test")
        urls.urlpatterns = list(patterns)
        store = Store.memory() if clock is None else Store.memory(clock=clock)
        changed = override_settings(ROOT_URLCONF=urls, RATELIMIT_STORES={"default": store}, **options)
        changed.enable()
        settings.append(changed)
        return Client(headers=WHO)

    yield make
    for changed in reversed(settings):
        changed.disable()


@pytest.mark.parametrize("options", [BY_ADDRESS, SLIDING])
def test_two_limits_of_a_view_are_two_counters(site: Any, clock: ManualClock, options: Any) -> None:
    view = rate_limit(2, 1, **options)(rate_limit(5, 3600, **options)(answering))
    client = site(path("x", view), clock=clock)
    for passing in (2, 2, 1, 0):
        assert [client.get("/x").status_code for _ in range(3)] == [200] * passing + [429] * (3 - passing)
        clock.advance(2)


class Both(View):
    """Each method with a limit of its own."""

    @method_decorator(rate_limit(1, 60))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("got")

    @method_decorator(rate_limit(1, 60))
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("posted")

    @method_decorator(rate_limit(2, 60))
    def put(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("put")


class BothByAddress(View):
    """The same by another key."""

    @method_decorator(rate_limit(1, 60, **BY_ADDRESS))
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("got")

    @method_decorator(rate_limit(1, 60, **BY_ADDRESS))
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("posted")


@pytest.mark.parametrize("view", [Both, BothByAddress])
def test_each_method_of_a_class_has_its_own_counter(site: Any, view: Any) -> None:
    client = site(path("both", view.as_view()))
    assert [client.get("/both").status_code for _ in range(2)] == [200, 429]
    assert [client.post("/both").status_code for _ in range(2)] == [200, 429]
    assert client.head("/both").status_code == 429, "answered by get"


def test_a_limit_on_a_whole_class_is_one_counter(site: Any) -> None:
    whole: Any = type("Whole", (View,), {"get": lambda *_: HttpResponse(), "post": lambda *_: HttpResponse()})
    limited = method_decorator(rate_limit(2, 60), name="dispatch")(whole)
    client = site(path("x", limited.as_view()))
    answers = [client.get("/x"), client.post("/x"), client.get("/x")]
    assert [answer.status_code for answer in answers] == [200, 200, 429]


TOLD = "got two limits by project, .* and .*, for which Application Kit has one counter; expected one"


def test_two_limits_for_one_counter_of_application_kit_are_refused() -> None:
    for first, second in [((10, 1), (1000, 3600)), ((10, 60), (20, 60))]:
        with pytest.raises(ImproperlyConfigured, match=TOLD):
            rate_limit(*first)(rate_limit(*second)(answering))
    rate_limit(1, 60)(rate_limit(1, 60)(answering))
    rate_limit(1, 60)(rate_limit(2, 60, endpoint_name="other")(answering))
    rate_limit(1, 60)(rate_limit(2, 60, **BY_ADDRESS)(answering))


def test_a_site_with_such_limits_does_not_start(site: Any) -> None:
    first, second = (rate_limit(limit, 60, endpoint_name="one")(answering) for limit in (1, 2))
    site(path("first", first), path("api/", include([path("second", second)])))
    with pytest.raises(ImproperlyConfigured, match=f"^one: {TOLD}"):
        RateLimitMiddleware(answering)
    (error,) = [message for message in run_checks() if message.id == "ratekeeper.E001"]
    assert error.msg.startswith("one: got two limits by project")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("nonsense", r'^key: got \'nonsense\'; expected "ip", "user", "user_or_ip", "header:NAME"'),
        ("header:", r"^key: got 'header:'; expected"),
        ("web.nowhere.key_of", "^key: No module named 'web.nowhere'; expected"),
        (7, "^key: expected a function, got int; such as key=lambda request: request.META"),
    ],
)
def test_keys_that_are_no_functions_are_told_by_the_decorator(key: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        rate_limit(1, 60, key=key)


def test_async_keys_are_told_by_the_decorator() -> None:
    async def key(request: HttpRequest) -> str | None: ...

    with pytest.raises(TypeError, match="^key: expected a plain function, got one that is async"):
        rate_limit(1, 60, key=key)  # type: ignore[arg-type]


@pytest.mark.parametrize("view", [rate_limit(1, 60)(answering), Both.as_view(), BothByAddress.as_view()])
def test_without_the_middleware_a_denial_is_a_429_all_the_same(site: Any, view: Any) -> None:
    client = site(path("x", view), MIDDLEWARE=[])
    client.get("/x")
    denied = client.get("/x")
    assert (denied.status_code, denied.json()) == (429, {"detail": "Rate limit exceeded. Try again later."})
    assert int(denied.headers["Retry-After"]) > 0
    assert denied.headers["RateLimit"].startswith('"requests";r=0')


async def test_the_same_of_an_async_view(site: Any) -> None:
    @rate_limit(1, 60)
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    site(path("x", view), MIDDLEWARE=[])
    client = AsyncClient()
    assert [(await client.get("/x", headers=WHO)).status_code for _ in range(2)] == [200, 429]


def test_who_calls_a_view_without_a_site_gets_the_exception() -> None:
    view = rate_limit(1, 60, endpoint_name="direct")(answering)
    with override_settings(RATELIMIT_STORES={"default": Store.memory()}):
        view(RequestFactory().get("/", headers=WHO))
        with pytest.raises(RateLimitExceeded):
            view(RequestFactory().get("/", headers=WHO))


class Mine(RateLimitMiddleware):
    """Somebody's middleware, made of ours."""


@pytest.mark.parametrize(
    ("middleware", "is_told"),
    [([], True), (["django.middleware.common.CommonMiddleware"], True), (["web.test_django_start.Mine"], False)],
)
def test_a_missing_middleware_is_told(
    site: Any, middleware: list[str], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site(path("x", Both.as_view()), MIDDLEWARE=middleware)
    assert [message.id for message in run_checks(tags=["ratekeeper"])] == ["ratekeeper.W001"] * is_told
    _checks.warn_of_no_middleware.cache_clear()
    with caplog.at_level(logging.WARNING, "ratekeeper"):
        for _ in range(3):
            rate_limit(1, 60)(answering)
    assert len(caplog.records) == is_told
    words = io.StringIO()
    call_command("check", stdout=io.StringIO(), stderr=words)
    assert ("ratekeeper.django.RateLimitMiddleware" in words.getvalue()) == is_told


def test_a_site_without_limits_needs_no_middleware(site: Any) -> None:
    site(path("x", answering), MIDDLEWARE=[])
    assert run_checks(tags=["ratekeeper"]) == []
