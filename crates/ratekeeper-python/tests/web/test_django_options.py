"""What users of django-ratelimit and of Django REST framework's throttles expect."""

from __future__ import annotations

import functools
import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Backend
from web import django_site  # noqa: F401 (configures Django, before it is imported)
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import path

from ratekeeper import ManualClock, Store
from ratekeeper.django import (
    UNSAFE,
    HttpException,
    RateLimitExceeded,
    get_usage,
    is_ratelimited,
    rate_limit,
    ratelimit,
)
from ratekeeper.django import _keys, _settings

Site = Callable[..., Client]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def site(clock: ManualClock) -> Iterator[Site]:
    """A site with these views, each under its name."""
    with override_settings(RATELIMIT_STORES={"default": Store.memory(clock=clock)}):

        def make(**views: Any) -> Client:
            urls: Any = types.ModuleType("urls")
            urls.urlpatterns = [path(name, view) for name, view in views.items()]
            enabled = override_settings(ROOT_URLCONF=urls)
            enabled.enable()
            made.append(enabled)
            return Client()

        made: list[Any] = []
        yield make
        for enabled in made:
            enabled.disable()


def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(getattr(request, "limited", None)))


def statuses(client: Client, count: int, url: str = "/x", method: str = "get", **fields: str) -> list[int]:
    return [getattr(client, method)(url, headers=fields).status_code for _ in range(count)]


def test_rates_as_text_all_hold(site: Site, clock: ManualClock) -> None:
    client = site(x=rate_limit("2/m;3/h", key="ip")(answer))
    assert statuses(client, 3) == [200, 200, 429]
    clock.advance(60)
    assert statuses(client, 2) == [200, 429]


def test_several_rates_by_project(site: Site) -> None:
    client = site(x=rate_limit("2/m;3/h")(answer))
    assert statuses(client, 3, **{"x-project": "1:2"}) == [200, 200, 429]
    assert statuses(client, 1, **{"x-project": "1:3"}) == [200]


def test_limits_from_a_function(site: Site) -> None:
    def said(request: HttpRequest) -> Any:
        return {"paid": 2, "free": "1/m"}.get(request.headers.get("x-plan", ""))

    client = site(x=rate_limit(said, 60, key="ip")(answer))
    assert statuses(client, 2, **{"x-plan": "free"}) == [200, 429]
    assert statuses(client, 3) == [200] * 3, "None is not limited"
    assert statuses(client, 2, **{"x-plan": "paid"}) == [200, 429]


def test_keys_by_name(site: Site) -> None:
    named = {
        "header": rate_limit("1/m", key="header:x-real-ip")(answer),
        "query": rate_limit("1/m", key="get:q")(answer),
        "form": rate_limit("1/m", key="post:name")(answer),
        "dotted": rate_limit("1/m", key="web.test_django_options.key_of")(answer),
    }
    client = site(**named)
    assert [statuses(client, 1, "/header", **{"x-real-ip": ip}) for ip in ("1", "1", "2")] == [[200], [429], [200]]
    assert statuses(client, 2, "/header") == [200, 429], "those without the field share one"
    assert [client.get("/query", {"q": q}).status_code for q in ("a", "a", "b")] == [200, 429, 200]
    assert [client.post("/form", {"name": name}).status_code for name in ("a", "a", "b")] == [200, 429, 200]
    assert statuses(client, 2, "/dotted", **{"x-key": "k"}) == [200, 429]


def key_of(request: HttpRequest) -> str | None:
    """What a site writes itself."""
    return request.headers.get("x-key")


def test_users_and_addresses() -> None:
    for name, anonymous in (("user", "user:"), ("user_or_ip", "ip:192.0.2.1")):
        request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1")
        assert _keys.key_named(name)(request) == anonymous
        request.user = types.SimpleNamespace(pk=7, is_authenticated=True)  # type: ignore[assignment]
        assert _keys.key_named(name)(request) == "user:7"
        request.user = types.SimpleNamespace(pk=None, is_authenticated=False)  # type: ignore[assignment]
        assert _keys.key_named(name)(request) == anonymous


def test_addresses_behind_trusted_proxies() -> None:
    request = RequestFactory().get("/", REMOTE_ADDR="10.0.0.1", headers={"x-forwarded-for": "6.6.6.6, 2001:db8::1"})
    assert _keys.address_of(request) == "10.0.0.1"
    with override_settings(RATELIMIT_TRUSTED_PROXIES=["10.0.0.0/8"]):
        assert _keys.address_of(request) == "2001:db8::/64"
        request.META["REMOTE_ADDR"] = ""
        assert _keys.address_of(request) == "::/64"
    for wrong in ("10.0.0.0/8", ["10.0.0.1/8"]):
        with override_settings(RATELIMIT_TRUSTED_PROXIES=wrong), pytest.raises(ImproperlyConfigured, match="RATELIMIT_TRUSTED"):
            _settings.check()


def test_methods_and_groups(site: Site) -> None:
    views = {
        "x": rate_limit("1/m", key="ip", methods=UNSAFE)(answer),
        "a": rate_limit("1/m", key="ip", group="shared")(answer),
        "b": rate_limit("1/m", key="ip", group="shared")(answer),
    }
    client = site(**views)
    assert statuses(client, 2) == [200, 200]
    assert statuses(client, 2, method="post") == [200, 429]
    assert [statuses(client, 1, url) for url in ("/a", "/b")] == [[200], [429]]
    with pytest.raises(ValueError, match="group: got one beside endpoint_name"):
        rate_limit(1, group="a", endpoint_name="b")


def test_what_does_not_block_tells_the_view(site: Site) -> None:
    client = site(x=rate_limit("1/m", key="ip", block=False)(answer))
    assert [client.get("/x").content for _ in range(2)] == [b"False", b"True"]
    assert client.get("/x").headers["RateLimit"] == '"requests";r=0;t=60'


def test_the_decorator_of_django_ratelimit(site: Site) -> None:
    async def aanswer(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(request.limited))  # type: ignore[attr-defined]

    client = site(x=ratelimit(key="ip", rate="1/m", method="POST")(answer), y=ratelimit(key="ip", rate="1/m", block=False)(aanswer))
    assert statuses(client, 2) == [200, 200] and statuses(client, 2, method="post") == [200, 429]
    assert [client.get("/y").content for _ in range(2)] == [b"False", b"True"]


def test_asking_from_within_a_view(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        before = get_usage(request, group="g", key="ip", rate="2/m")
        assert before is not None and before["limit"] == 2
        assert is_ratelimited(request, group="g", key="ip", rate="2/m") is before["should_limit"], "does not count"
        limited = is_ratelimited(request, group="g", key="ip", rate="2/m", increment=True)
        assert request.limited is limited  # type: ignore[attr-defined]
        return HttpResponse(f"{before['count']} {limited}")

    client = site(x=view)
    answers = [client.get("/x") for _ in range(3)]
    assert [got.content for got in answers] == [b"0 False", b"1 False", b"2 True"]
    assert answers[2].status_code == 200 and answers[2].headers["RateLimit"] == '"requests";r=0;t=60'


def test_the_arguments_are_those_of_django_ratelimit() -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    with override_settings(RATELIMIT_STORES={"default": Store.memory()}):
        request = RequestFactory().get("/")
        # request, group, fn, key, rate, method, increment: all by place.
        assert [is_ratelimited(request, None, view, "ip", "1/m", ["GET"], True) for _ in range(2)] == [False, True]
        usage = get_usage(request, None, functools.partial(view), "ip", "1/m", ("GET",), False)
        assert usage is not None and (usage["count"], usage["should_limit"]) == (1, True)
        named = f"{view.__module__}.{view.__qualname__}"
        assert is_ratelimited(request, named, None, "ip", "1/m", ["GET"]), "the name of the function is the group"
        assert not is_ratelimited(request, "g", view, "ip", "1/m", ["GET"], True), "a group is one of its own"


def test_exceptions_have_what_application_kit_has() -> None:
    with override_settings(RATELIMIT_STORES={"default": "memory"}):
        view = rate_limit(1, 60, key="ip")(answer)
        request = RequestFactory().get("/")
        view(request)
        with pytest.raises(HttpException) as caught:
            view(request)
        error = caught.value
        assert isinstance(error, RateLimitExceeded)
        assert (error.status, error.message) == (429, "Rate limit exceeded. Try again later.")
        assert error.headers["ratelimit"] == error.headers["RateLimit"] == '"requests";r=0;t=60'
        assert error.headers["Retry-After"] == "60" and {"RateLimit", "RateLimit-Policy", "Retry-After"} <= {*error.headers}
        again = pickle.loads(pickle.dumps(error))
        assert isinstance(again, RateLimitExceeded)
        assert (again.status, again.headers, again.decision, again.result) == (429, error.headers, error.decision, error.result)


def test_application_kit_by_its_import(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    from ratekeeper.application_kit import _connections, configure
    from ratekeeper.application_kit.django.ratelimit import rate_limit as kit_rate_limit

    configure(redis={"ratelimit": Store.memory()})

    def authenticate_key() -> Any:
        """Application Kit's, as far as limits see it."""

        def decorate(view: Any) -> Any:
            def authenticated(request: Any) -> Any:
                request.token = types.SimpleNamespace(organization_id=1, project_id=int(request.headers["x-key"]))
                return view(request)

            return authenticated

        return decorate

    @authenticate_key()
    @kit_rate_limit(max_requests=1, expiry=60)
    def search(request: HttpRequest) -> HttpResponse:
        return HttpResponse("ok")

    with override_settings(RATELIMIT_PROJECT=None):
        client = site(search=search)
        assert statuses(client, 2, "/search", **{"x-key": "7"}) == [200, 429]
        assert statuses(client, 1, "/search", **{"x-key": "8"}) == [200]
    _connections._sources.clear()
    _connections._opened.clear()


def throttled(**throttles: Any) -> dict[str, Any]:
    from rest_framework.response import Response
    from rest_framework.views import APIView

    def view_of(throttle: Any, scope: str | None) -> Any:
        class Limited(APIView):  # type: ignore[misc]
            throttle_classes = [throttle]
            throttle_scope = scope
            authentication_classes: list[Any] = []

            def get(self, request: Any) -> Any:
                return Response("ok")

        return Limited.as_view()

    return {name: view_of(*said) for name, said in throttles.items()}


REST = {"DEFAULT_THROTTLE_RATES": {"anon": "2/min", "user": "3/day", "uploads": "1/hour"}, "UNAUTHENTICATED_USER": None}


def test_throttles_of_rest_framework(backend: Backend, site: Site, clock: ManualClock) -> None:
    with override_settings(REST_FRAMEWORK=REST, RATELIMIT_STORES={"default": backend.store(clock=clock)}):
        from ratekeeper.django.throttling import AnonRateThrottle, ScopedRateThrottle, UserRateThrottle

        for kind in (AnonRateThrottle, UserRateThrottle, ScopedRateThrottle):
            kind.THROTTLE_RATES = REST["DEFAULT_THROTTLE_RATES"]
        views = throttled(
            anon=(AnonRateThrottle, None), user=(UserRateThrottle, None), scoped=(ScopedRateThrottle, "uploads"),
            free=(ScopedRateThrottle, None),
        )
        client = site(**views)
        assert statuses(client, 3, "/anon") == [200, 200, 429]
        denied = client.get("/anon")
        assert denied.headers["Retry-After"] == "60" and denied.headers["RateLimit"].startswith('"anon";r=0')
        clock.advance(60)
        assert statuses(client, 1, "/anon") == [200]
        assert statuses(client, 4, "/user") == [200, 200, 200, 429]
        assert statuses(client, 2, "/scoped") == [200, 429] and statuses(client, 3, "/free") == [200] * 3


@pytest.mark.parametrize(
    ("mode", "expected", "told"), [("on", [200, 200, 429], True), ("monitor", [200] * 3, True), ("off", [200] * 3, False)]
)
def test_throttles_of_rest_framework_obey_the_mode(site: Site, mode: str, expected: list[int], told: bool) -> None:
    with override_settings(REST_FRAMEWORK=REST, RATELIMIT_MODE=mode):
        from ratekeeper.django.throttling import AnonRateThrottle

        AnonRateThrottle.THROTTLE_RATES = REST["DEFAULT_THROTTLE_RATES"]
        client = site(**throttled(anon=(AnonRateThrottle, None)))
        assert statuses(client, 3, "/anon") == expected
        assert ("RateLimit" in client.get("/anon").headers) == told


@pytest.mark.parametrize(("on_outage", "mode", "expected"), [("allow", "on", 200), ("deny", "on", 429), ("deny", "monitor", 200)])
def test_throttles_of_rest_framework_in_an_outage(site: Site, on_outage: str, mode: str, expected: int) -> None:
    # Nobody listens there.
    away = {"default": Store.redis("redis://127.0.0.1:1")}
    settings = {"RATELIMIT_STORES": away, "RATELIMIT_ON_OUTAGE": on_outage, "RATELIMIT_MODE": mode}
    with override_settings(REST_FRAMEWORK=REST, **settings):
        from ratekeeper.django.throttling import UserRateThrottle

        UserRateThrottle.THROTTLE_RATES = REST["DEFAULT_THROTTLE_RATES"]
        client = site(**throttled(user=(UserRateThrottle, None)))
        response = client.get("/user")
        assert response.status_code == expected
        # The framework knows no other denial; when to come back is told.
        assert response.headers.get("Retry-After") == ("1" if expected == 429 else None)
