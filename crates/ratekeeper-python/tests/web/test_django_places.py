"""Django: places of concurrency, async classes of views, and stores that are opened once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.client
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import AsyncClient, RequestFactory, override_settings
from servers import RedisServer, wait_for

from ratekeeper import Store
from ratekeeper.django import store_named
from web import django_site
from web.test_django import served
from web.web_servers import TIMEOUT, Client


@pytest.fixture(params=["asgi", "wsgi"])
def site(request: pytest.FixtureRequest, store: Store) -> Iterator[Client]:
    """The site on a store of every kind, served either way."""
    django_site.GO_ON.clear()
    yield from served(request.param, store)
    django_site.GO_ON.set()


@pytest.mark.parametrize("view", ["held", "aheld"])
def test_a_place_is_given_back_whatever_becomes_of_the_request(site: Client, view: str) -> None:
    for query, status in [("", 200), ("?broken=1", 500)] * 2:
        wait_for(lambda: site.get(f"/{view}{query}", x_project="1:2").status == status, 5)


def test_a_place_is_held_until_the_response_is_sent(site: Client) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=TIMEOUT)) as connection:
        connection.request("GET", "/held?parts=1", headers={"x-project": "1:2"})
        response = connection.getresponse()
        assert response.read(5) == b"first"
        denied = site.get("/held", x_project="1:2")
        assert (denied.status, site.get("/held", x_project="1:3").status) == (429, 200)
        django_site.GO_ON.set()
        assert response.read() == b"last"
    wait_for(lambda: site.get("/held", x_project="1:2").status == 200)


def test_nobody_to_give_places_back_is_told() -> None:
    request = RequestFactory().get("/", headers={"x-project": "1:2"})
    with pytest.raises(ImproperlyConfigured, match="held has a limit of concurrency, .*RateLimitMiddleware"):
        django_site.held(request)


@pytest.mark.parametrize("path", ["/asearch", "/limited-classy", "/decorated-classy"])
async def test_async_views_do_not_block_the_loop(own_server: RedisServer, path: str) -> None:
    store = Store.redis(own_server.url, deadline=10)
    store.ping()
    with override_settings(RATELIMIT_STORES={"default": store}):
        own_server.pause()
        # Only a loop that goes on can let the server answer.
        asyncio.get_running_loop().call_later(0.2, own_server.resume)
        answer = await AsyncClient().get(path, headers={"x-project": "1:2"})
    assert answer.status_code == 200
    assert "RateLimit" in answer.headers, "it was counted, not let pass unchecked"


def test_threads_that_come_first_share_a_store() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for _ in range(50):
                barrier = threading.Barrier(16)

                def store(_: int, barrier: Any = barrier) -> Store:
                    barrier.wait()
                    return store_named("default")

                with override_settings(RATELIMIT_STORES={"default": "memory"}):
                    assert len({id(found) for found in pool.map(store, range(16))}) == 1
    finally:
        sys.setswitchinterval(interval)
