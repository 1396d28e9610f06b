"""Django: mistakes that were silent, and what programs that know Application Kit expect."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory, override_settings

from ratekeeper import Store
from ratekeeper.django import (
    RateLimitExceeded,
    RateLimitMiddleware,
    RateLimitMode,
    RateLimitResult,
    get_rate_limit_mode,
    is_rate_limit_disabled,
    rate_limit,
)
from web import django_site  # noqa: F401 (configures Django)


def answering(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@override_settings(RATELIMIT_STORES={})
def test_a_site_without_stores_does_not_start() -> None:
    with pytest.raises(ImproperlyConfigured, match="RATELIMIT_STORES: got none; expected a store 'default'"):
        RateLimitMiddleware(answering)


def test_a_store_that_is_not_there_is_told_by_the_decorator() -> None:
    with pytest.raises(ImproperlyConfigured, match="got 'default', 'other'; expected a store 'typo'"):
        rate_limit(1, 60, store="typo")
    with override_settings(RATELIMIT_STORES={}):
        rate_limit(1, 60, store="typo")  # The middleware tells that there are none.


@pytest.mark.parametrize("mode", ["off", "monitor", RateLimitMode.monitor, lambda: "off", None])
def test_the_mode_is_that_of_the_settings(mode: Any) -> None:
    expected = RateLimitMode((mode() if callable(mode) else mode) or "on")
    with override_settings(RATELIMIT_MODE=mode):
        assert get_rate_limit_mode() is expected
        assert is_rate_limit_disabled() == (expected is not RateLimitMode.on)


def test_requests_of_nobody_are_told_once_for_an_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    view = rate_limit(1, 60, endpoint_name="nobodys")(answering)
    with caplog.at_level(logging.WARNING, "ratekeeper"):
        for _ in range(3):
            assert view(RequestFactory().get("/")).status_code == 200
    (record,) = caplog.records
    assert "nobodys: a request of nobody that RATELIMIT_PROJECT knows" in record.getMessage()


@pytest.mark.parametrize(("found", "told"), [("12", "'12'"), ((1, 2, 3), r"\(1, 2, 3\)"), (7, "int")])
def test_what_is_no_pair_is_told(found: Any, told: str) -> None:
    view = rate_limit(1, 60)(answering)
    with (
        override_settings(RATELIMIT_PROJECT=lambda request: found, RATELIMIT_STORES={"default": "memory"}),
        pytest.raises(TypeError, match=rf"RATELIMIT_PROJECT: got {told}; expected \(organisation, project\)"),
    ):
        view(RequestFactory().get("/"))


@pytest.mark.parametrize("name", ["RATELIMIT_PROJECT", "RATELIMIT_MODE"])
def test_async_functions_are_refused_where_nobody_awaits_them(name: str) -> None:
    async def found(*_: Any) -> Any: ...

    with (
        override_settings(**{name: found}),
        pytest.raises(ImproperlyConfigured, match=f"{name}: expected a plain function, got one that is async"),
    ):
        RateLimitMiddleware(answering)


def refusing(request: HttpRequest) -> HttpResponse:
    raise RateLimitExceeded(RateLimitResult(is_over_limit=True, request_count=9, ttl=7, max_requests=5))


def test_programs_raise_denials_of_their_own() -> None:
    with override_settings(RATELIMIT_STORES={"default": Store.memory()}):
        middleware = RateLimitMiddleware(answering)
        try:
            refusing(RequestFactory().get("/"))
        except RateLimitExceeded as error:
            answer = middleware.process_exception(RequestFactory().get("/"), error)
            assert error.result.request_count == 9
    assert answer is not None and answer.status_code == 429
    assert answer.headers["Retry-After"] == "7"


def test_the_site_still_works() -> None:
    with override_settings(RATELIMIT_STORES={"default": Store.memory()}):
        client = Client(headers={"x-project": "1:2"})
        assert [client.get("/search").status_code for _ in range(3)] == [200, 200, 429]
