"""Calls to other services: they wait for their turn, and for what the other side says."""

from __future__ import annotations

import asyncio
import email.utils
import http.server
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from conftest import DEADLINE, Backend

from ratekeeper import Limiter, Quota, Rule, Store
from ratekeeper.outgoing import OutgoingLimiter, OutgoingLimitExceeded
from ratekeeper.outgoing._told import PAUSE_MAX, pause_told
from ratekeeper.outgoing.httpx import AsyncRateLimitTransport, RateLimitTransport
from ratekeeper.outgoing.requests import RateLimitAdapter

try:
    import httpx
except ImportError:
    import httpx2 as httpx  # type: ignore[no-redef]

HOST = "api.example.com"


class Other(http.server.BaseHTTPRequestHandler):
    """Another service, which says what it is told to say."""

    answers: list[tuple[int, dict[str, str]]] = []

    def do_GET(self) -> None:
        status, fields = self.answers.pop(0) if self.answers else (200, {})
        self.send_response(status)
        for name, value in {**fields, "content-length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def other() -> Iterator[str]:
    """Where it is."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()
    Other.answers.clear()


@pytest.mark.parametrize(
    ("status", "headers", "pause"),
    [
        (429, {"Retry-After": "7"}, 7), (503, {"retry-after": " 2 "}, 2), (200, {"Retry-After": "7"}, 0), (429, {}, 0),
        (429, {"Retry-After": "soon"}, 0), (429, {"Retry-After": "999999999"}, PAUSE_MAX),
        (200, {"RateLimit": '"a";r=0;t=30'}, 30), (200, {"RateLimit": '"a;r=0;t=9";r=5;t=30, "b";r=0;t=4'}, 4),
        (200, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "12"}, 12), (200, {"RateLimit-Remaining": "3", "RateLimit-Reset": "9"}, 0),
    ],
)
def test_what_the_other_side_says(status: int, headers: dict[str, str], pause: float) -> None:
    assert pause_told(status, headers) == pause


def test_instants_are_said_by_dates_and_by_epochs() -> None:
    at = time.time() + 100
    assert 95 < pause_told(429, {"Retry-After": email.utils.formatdate(at, usegmt=True)}) <= 100
    assert 95 < pause_told(200, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(at))}) <= 101
    assert pause_told(429, {"Retry-After": email.utils.formatdate(at - 200, usegmt=True)}) == 0


async def test_calls_wait_for_their_turn() -> None:
    limiter = OutgoingLimiter(None, {HOST: Quota("20/s leaky_bucket")})
    begun = time.monotonic()
    for _ in range(4):
        async with limiter.slot(HOST):
            pass
    assert time.monotonic() - begun >= 0.149, "three waits of 50 ms"
    async with limiter.slot("other.example.com"):
        pass


async def test_a_turn_that_would_take_too_long_is_an_error(backend: Backend) -> None:
    options: dict[str, Any] = {"deadline": DEADLINE} if backend.server else {}
    limiter = OutgoingLimiter(backend.store(**options), {"*": "1/hour"}, patience=5)
    async with limiter.slot(HOST):
        pass
    async with limiter.slot("other.example.com"):
        pass
    with pytest.raises(OutgoingLimitExceeded, match="api.example.com: no room within 5 s: denied by outgoing") as caught:
        async with limiter.slot(HOST.upper()):
            raise AssertionError
    assert caught.value.decision is not None and caught.value.retry_after > 1_000
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.host, again.decision) == (str(caught.value), HOST, caught.value.decision)
    with pytest.raises(OutgoingLimitExceeded), limiter.slot(HOST):
        raise AssertionError


async def test_calls_that_wait_are_bounded() -> None:
    limiter = OutgoingLimiter(None, {HOST: "1/hour"}, patience=4_000, waiting_max=1)
    async with limiter.slot(HOST):
        pass

    async def waits() -> None:
        async with limiter.slot(HOST):
            raise AssertionError

    waiting = asyncio.create_task(waits())
    while not limiter.waiting:
        await asyncio.sleep(0)
    with pytest.raises(OutgoingLimitExceeded, match="1 calls are waiting, which is as many as may"):
        async with limiter.slot("other.example.com"):
            raise AssertionError
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert limiter.waiting == 0


async def test_places_are_given_back() -> None:
    store = Store.memory()
    limiter = OutgoingLimiter(store, {HOST: "1/60s concurrency"}, patience=0)
    for _ in range(2):
        async with limiter.slot(HOST):
            with pytest.raises(OutgoingLimitExceeded):
                async with limiter.slot(HOST):
                    raise AssertionError
    with limiter.slot(HOST):
        pass
    assert Limiter(store, Rule("outgoing", "1/60s concurrency")).check(HOST)


def test_what_is_no_limit_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"^limits\['api.example.com'\]: "):
        OutgoingLimiter(None, {HOST: "often"})
    for wrong in ({"patience": -1}, {"waiting_max": -1}):
        with pytest.raises(ValueError, match="expected 0 or more"):
            OutgoingLimiter(None, {}, **wrong)  # type: ignore[arg-type]


def test_requests_waits_for_the_other_side(other: str) -> None:
    limiter = OutgoingLimiter(None, {"127.0.0.1": "100/s"}, patience=0.5)
    with requests.Session() as session:
        session.mount("http://", RateLimitAdapter(limiter))
        Other.answers.append((429, {"Retry-After": "60"}))
        assert session.get(other).status_code == 429
        assert 50 < limiter.paused("127.0.0.1") <= 60
        with pytest.raises(OutgoingLimitExceeded, match="it asked for .* s without calls, and this one may wait 0.5 s"):
            session.get(other)


def test_httpx_waits_for_the_other_side(other: str) -> None:
    limiter = OutgoingLimiter(None, {}, patience=30)
    with httpx.Client(transport=RateLimitTransport(limiter, httpx.HTTPTransport())) as client:  # type: ignore[arg-type]
        Other.answers.append((200, {"RateLimit": '"default";r=0;t=1'}))
        begun = time.monotonic()
        assert [client.get(other).status_code for _ in range(2)] == [200, 200]
        assert time.monotonic() - begun >= 0.9


async def test_async_httpx_waits_for_the_other_side(other: str) -> None:
    limiter = OutgoingLimiter(None, {}, patience=0.1)
    transport: Any = AsyncRateLimitTransport(limiter, httpx.AsyncHTTPTransport())
    async with httpx.AsyncClient(transport=transport) as client:
        Other.answers.append((503, {"Retry-After": "30"}))
        assert (await client.get(other)).status_code == 503
        with pytest.raises(OutgoingLimitExceeded):
            await client.get(other)
