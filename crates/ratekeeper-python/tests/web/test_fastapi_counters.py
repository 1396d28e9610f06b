"""FastAPI: which limits share a counter, and which mistakes keep an application from starting."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from conftest import Backend
from fastapi import Depends, FastAPI, Request, Response

from ratekeeper import ManualClock, Store, _web
from ratekeeper.fastapi import (
    PathRateLimiter,
    ProjectRateLimiter,
    RateLimiter,
    apply_rate_limit,
    make_path_rate_limit_key,
    setup,
)
from web.fastapi_site import application, lifespan_of, limited, messages_of

# What the oldest Starlette imports is deprecated by now.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient


class HostLimiter(RateLimiter):
    def make_key(self, request: Request) -> str | None:
        return make_path_rate_limit_key("everybody")


class SlidingProject(ProjectRateLimiter):
    """By project, where Application Kit has no counter."""

    def __init__(self, max_requests: int, expiry: int) -> None:
        super().__init__(max_requests, expiry, algorithm="sliding_window")


async def statuses(app: FastAPI, path: str, count: int) -> list[int]:
    return [(await messages_of(app, path))[0]["status"] for _ in range(count)]


@pytest.mark.parametrize("kind", [PathRateLimiter, HostLimiter, SlidingProject])
async def test_two_limits_on_a_route_are_two_counters(kind: Any, backend: Backend, clock: ManualClock) -> None:
    store = backend.store(clock=clock)
    app = limited(kind(2, 1), kind(5, 3600), store=store, identify=lambda request: (1, 2))
    for passing in (2, 2, 1, 0):
        assert await statuses(app, "/search", 3) == [200] * passing + [429] * (3 - passing), passing
        clock.advance(2)


@pytest.mark.parametrize("kind", [PathRateLimiter, HostLimiter, SlidingProject])
async def test_limits_of_one_window_are_counters_of_their_own(kind: Any, backend: Backend) -> None:
    app = application(backend.store(), identify=lambda request: (1, 2))
    app.get("/items", dependencies=[Depends(kind(5, 60))])(lambda: None)
    app.post("/items", dependencies=[Depends(kind(2, 60))])(lambda: None)

    async def post() -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        scope = {"type": "http", "method": "POST", "path": "/items", "headers": [], "query_string": b""}
        await app(scope, receive, send)
        return int(sent[0]["status"])

    assert await statuses(app, "/items", 4) == [200] * 4
    assert [await post() for _ in range(3)] == [200, 200, 429]
    assert await statuses(app, "/items", 2) == [200, 429]


STARTED = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def with_two(first: ProjectRateLimiter, second: ProjectRateLimiter) -> FastAPI:
    app = application(Store.memory(), identify=lambda request: (1, 2))
    app.get("/items", dependencies=[Depends(first)])(lambda: None)
    app.post("/items", dependencies=[Depends(second)])(lambda: None)
    return app


@pytest.mark.parametrize("terms", [(5, 1), (1000, 3600), (10, 60)])
async def test_two_limits_for_one_counter_of_application_kit_do_not_start(terms: tuple[int, int]) -> None:
    first, second = ProjectRateLimiter(10, 1), ProjectRateLimiter(*terms)
    for app in (limited(first, second, store=Store.memory()), with_two(first, second)):
        expected = rf"^/(search|items): got two limits by project, 10/s fixed_window and {second.quota}, .* key_suffix="
        with pytest.raises(ValueError, match=expected):
            await lifespan_of(app)
        # Nor does it answer, where a server leaves the start out.
        with pytest.raises(ValueError, match="two limits by project"):
            await messages_of(app, "/items")


async def test_servers_learn_why_an_application_does_not_start() -> None:
    app = limited(ProjectRateLimiter(10, 1), ProjectRateLimiter(5, 60), store=Store.memory())
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    with pytest.raises(ValueError):
        await app({"type": "lifespan", "app": app}, receive, send)
    (failed,) = sent
    assert failed["type"] == "lifespan.startup.failed"
    assert "two limits by project" in failed["message"]


async def test_mounted_routes_are_looked_at_too() -> None:
    inner, app = FastAPI(), application(Store.memory())
    inner.get("/x", dependencies=[Depends(ProjectRateLimiter(1, 1)), Depends(ProjectRateLimiter(1, 60))])(lambda: None)
    app.mount("/tenants/{tenant}", inner)
    with pytest.raises(ValueError, match=r"^/tenants/\{tenant\}/x: got two"):
        await messages_of(app, "/")


async def test_limits_with_suffixes_or_equal_numbers_start(clock: ManualClock) -> None:
    same = ProjectRateLimiter(10, 1)
    for app in (with_two(same, ProjectRateLimiter(10, 1)), limited(same, same, store=Store.memory())):
        assert [message["type"] for message in await lifespan_of(app)] == STARTED
        assert (await messages_of(app, "/docs"))[0]["status"] == 200
    limiters = ProjectRateLimiter(2, 1), ProjectRateLimiter(3, 3600, key_suffix="/hour")
    store = Store.memory(clock=clock)
    app = limited(*limiters, store=store, identify=lambda request: (1, 2))
    for passing in (2, 1):
        assert await statuses(app, "/search", 3) == [200] * passing + [429] * (3 - passing)
        clock.advance(2)
    await store.aset_override("/search/hour", 1, 2, max_requests=100, expiry=3600)
    assert await statuses(app, "/search", 3) == [200, 200, 429]


@pytest.mark.parametrize(
    ("suffix", "error", "told"),
    [
        ("/élan", ValueError, r"^key_suffix: got '/\\xe9lan'; expected at most 128 printable ASCII characters$"),
        ("/" + "x" * 128, ValueError, "^key_suffix: got 129 characters; expected at most 128"),
        ("/\n", ValueError, r"^key_suffix: got '/\\n'; expected"),
        (7, TypeError, "^key_suffix: expected str, got int$"),
    ],
)
def test_suffixes_are_looked_at_when_they_are_given(suffix: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        ProjectRateLimiter(1, key_suffix=suffix)
    limiter = ProjectRateLimiter(1)
    with pytest.raises(error, match=told):
        limiter.key_suffix = suffix
    assert limiter.key_suffix == ""


def applying(store: Store) -> FastAPI:
    app = application(store, identify=lambda request: (1, "two"))

    @app.get("/apply")
    async def apply(request: Request, response: Response, suffix: str) -> None:
        await apply_rate_limit(request, response, 2, 60, key_suffix=suffix)

    return app


SUFFIXES = ["/élan", "/" + "x" * 5_000, "/" + "x" * 5_001, "/日本" * 100, "/%", "/a:b:c", "/\n", "//", "/%C3%A9lan"]


def test_suffixes_of_requests_may_be_anything(backend: Backend) -> None:
    client = TestClient(applying(backend.store()))
    for suffix in SUFFIXES:
        answers = [client.get("/apply", params={"suffix": suffix}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429], suffix
        assert answers[0].headers["ratelimit"].isascii()


def test_halves_of_characters_are_a_suffix_like_others() -> None:
    assert _web.derive_policy_name("/a\ud800").isascii()
    assert _web.bounded_suffix("/a\ud800") == "/a\\ud800"


@pytest.mark.parametrize(
    ("suffix", "name"), [("", "requests"), ("/elements", "elements"), ("/a/b", "a/b"), ("//x/", "x/"), ("/é", "%C3%A9")]
)
def test_policies_are_called_after_the_suffix_of_their_key(suffix: str, name: str) -> None:
    answer = TestClient(applying(Store.memory())).get("/apply", params={"suffix": suffix})
    assert answer.headers["ratelimit-policy"] == f'"{name}";q=2;w=60'


def test_many_suffixes_use_up_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_web, "DERIVED_NAMES_MAX", 5)
    monkeypatch.setattr(_web, "_derived_names", set())
    client = TestClient(applying(Store.memory()))
    called = {client.get("/apply", params={"suffix": f"/many-{number}"}).headers["ratelimit"] for number in range(20)}
    assert called == {f'"many-{number}";r=1;t=60' for number in range(5)} | {'"requests";r=1;t=60'}


@pytest.mark.parametrize("name", ["make_override_key", "make_org_override_key"])
def test_async_keys_are_refused_when_a_limiter_is_made(name: str) -> None:
    async def make(self: Any, request: Request) -> str | None: ...

    kind: Any = type("Mine", (PathRateLimiter,), {name: make})
    with pytest.raises(TypeError, match=rf"^Mine\.{name}: expected a plain function, got one that is async"):
        kind(1)


async def test_setup_knows_routes_that_come_later() -> None:
    app = FastAPI()
    setup(app, store=Store.memory())
    app.get("/late", dependencies=[Depends(ProjectRateLimiter(1, 1)), Depends(ProjectRateLimiter(9, 60))])(lambda: None)
    with pytest.raises(ValueError, match="^/late: got two limits"):
        await lifespan_of(app)
