"""FastAPI's limiters: whose limit it is, and what requests meet."""

from __future__ import annotations

import concurrent.futures
import re
from typing import Any

import pytest
from conftest import Backend
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from ratekeeper import HttpOptions, Store
from ratekeeper.fastapi import (
    PathRateLimiter,
    ProjectRateLimiter,
    RateLimiter,
    RateLimitExceeded,
    apply_element_rate_limit,
    apply_rate_limit,
    is_rate_limit_disabled,
    make_path_rate_limit_key,
    setup,
)
from ratekeeper.overrides import (
    delete_rate_limit_override,
    set_org_rate_limit_override,
    set_rate_limit_override,
)
from web.conftest import Serve

DETAIL = {"detail": "Rate limit exceeded. Try again later."}


async def authenticate(request: Request) -> None:
    """Somebody's authentication: the project stands in a field."""
    who = request.headers.get("x-project")
    if who is not None:
        request.state.organization_id, request.state.project_id = map(int, who.split(":"))


def application(store: Store | None, **options: Any) -> FastAPI:
    app = FastAPI(dependencies=[Depends(authenticate)])
    setup(app, store=store, **options)
    return app


def limited(*limiters: Any, store: Store | None = None, **options: Any) -> FastAPI:
    """An application whose /search has these limiters."""
    app = application(store, **options)

    @app.get("/search", dependencies=[Depends(limiter) for limiter in limiters])
    async def search() -> dict[str, str]:
        return {"status": "ok"}

    return app


def test_a_project_has_its_own_limit_on_every_endpoint(store: Store, serve: Serve) -> None:
    app = limited(ProjectRateLimiter(max_requests=2, expiry=60), store=store)

    @app.get("/other", dependencies=[Depends(ProjectRateLimiter(2, 60))])
    async def other() -> None: ...

    client = serve(app)
    first, second, third = (client.get("/search", x_project="1:2") for _ in range(3))
    assert (first.status, second.status) == (200, 200)
    assert first.limits == {"ratelimit-policy": '"requests";q=2;w=60', "ratelimit": '"requests";r=1;t=60'}
    assert second.headers["ratelimit"].startswith('"requests";r=0;t=')
    assert (third.status, third.json) == (429, DETAIL)
    assert third.headers["content-type"] == "application/json"
    assert third.headers["ratelimit-policy"] == '"requests";q=2;w=60'
    assert third.headers["ratelimit"].startswith('"requests";r=0;t=')
    assert 0 < int(third.headers["retry-after"]) <= 60
    for path, project in [("/search", "1:3"), ("/search", "2:2"), ("/other", "1:2")]:
        assert client.get(path, x_project=project).status == 200, (path, project)


def test_requests_of_nobody_are_not_limited(store: Store, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(1, 60), store=store))
    assert [client.get("/search").limits for _ in range(3)] == [{}, {}, {}]


def test_identify_says_who_is_calling(store: Store, serve: Serve) -> None:
    def identify(request: Any) -> tuple[int, int] | None:
        return (1, int(request.headers["x-key"])) if "x-key" in request.headers else None

    client = serve(limited(ProjectRateLimiter(1, 60), store=store, identify=identify))
    statuses = [client.get("/search", x_key=key).status for key in ("7", "7", "8")]
    assert statuses == [200, 429, 200]


def test_counters_are_those_of_application_kit(remote: Backend, serve: Serve) -> None:
    app = application(remote.store())

    @app.get("/datasets/{dataset_id}/search", dependencies=[Depends(ProjectRateLimiter(5, 60))])
    async def search(dataset_id: int) -> None: ...

    client, redis = serve(app), remote.client()
    for dataset in (7, 8):
        assert client.get(f"/datasets/{dataset}/search", x_project="1:42").status == 200
    key = "ratelimit:/datasets/{dataset_id}/search:1:42"
    assert redis.keys("ratelimit:*") == [key]
    assert redis.get(key) == "2"
    assert 0 < redis.ttl(key) <= 60
    # Application Kit counts there as well.
    redis.incrby(key, 3)
    assert client.get("/datasets/7/search", x_project="1:42").status == 429


async def test_overrides_of_the_project_beat_those_of_the_organisation(store: Store, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(1, 60), store=store))

    def policy(project: str) -> str:
        return client.get("/search", x_project=project).headers["ratelimit-policy"]

    assert policy("1:2") == '"requests";q=1;w=60'
    await set_org_rate_limit_override(store, 1, "/search", max_requests=10, expiry=30)
    assert policy("1:2") == policy("1:3") == '"requests";q=10;w=30'
    await set_rate_limit_override(store, 1, 2, "/search", max_requests=20, expiry=15)
    assert (policy("1:2"), policy("1:3")) == ('"requests";q=20;w=15', '"requests";q=10;w=30')
    assert await delete_rate_limit_override(store, 1, 2, "/search")
    assert policy("1:2") == '"requests";q=10;w=30'
    # Each project has the organisation's limit for itself.
    remaining = [client.get("/search", x_project=f"1:{n}").headers["ratelimit"][:14] for n in (4, 5)]
    assert remaining == ['"requests";r=9'] * 2


def test_paths_have_their_own_limits(store: Store, serve: Serve) -> None:
    app = application(store)

    @app.get("/users/{user}", dependencies=[Depends(PathRateLimiter(max_requests=1, expiry=60))])
    async def users(user: str) -> None: ...

    client = serve(app)
    paths = ["/users/123", "/users/123", "/users/456", "/users/1:2", "/users/" + "x" * 5000, "/users/" + "x" * 5000]
    assert [client.get(path).status for path in paths] == [200, 429, 200, 200, 200, 429]
    answer = client.get("/users/9")
    assert answer.limits == {"ratelimit-policy": '"requests";q=1;w=60', "ratelimit": '"requests";r=0;t=60'}


def test_a_path_cannot_name_its_way_into_a_counter_of_a_project(remote: Backend, serve: Serve) -> None:
    app = application(remote.store())

    @app.get("/{rest:path}", dependencies=[Depends(PathRateLimiter(1, 60))])
    async def everything(rest: str) -> None: ...

    assert serve(app).get("/search:1:2").status == 200
    assert remote.client().keys("ratelimit*") == []


class RegionLimiter(ProjectRateLimiter):
    """A project has a limit in each region."""

    def make_key(self, request: Request) -> str | None:
        key = super().make_key(request)
        return f"{key}:{request.headers.get('x-region', 'default')}" if key else None


async def test_keys_can_be_made_from_the_key(store: Store, serve: Serve) -> None:
    client = serve(limited(RegionLimiter(1, 60), store=store))
    statuses = [client.get("/search", x_project="1:2", x_region=region).status for region in ("eu", "eu", "us")]
    assert statuses == [200, 429, 200]
    await set_rate_limit_override(store, 1, 2, "/search", max_requests=5, expiry=60)
    assert client.get("/search", x_project="1:2", x_region="eu").status == 200


class AddressLimiter(RateLimiter):
    """As in the documentation of Application Kit."""

    def make_key(self, request: Request) -> str | None:
        if is_rate_limit_disabled() or "x-internal" in request.headers:
            return None
        assert request.client is not None
        return make_path_rate_limit_key(f"{request.url.path}:{request.client.host}")


def test_limiters_of_ones_own_skip_with_none(store: Store, serve: Serve) -> None:
    client = serve(limited(AddressLimiter(max_requests=1, expiry=60), store=store))
    assert [client.get("/search").status for _ in range(2)] == [200, 429]
    skipped = client.get("/search", x_internal="1")
    assert (skipped.status, skipped.limits) == (200, {})


def test_a_limiter_must_say_its_key() -> None:
    with pytest.raises(TypeError, match="make_key"):
        RateLimiter(1)  # type: ignore[abstract]


class WithoutProjectOverrides(ProjectRateLimiter):
    def make_override_key(self, request: Request) -> str | None:
        return None


class WithoutOrganisationOverrides(ProjectRateLimiter):
    def make_org_override_key(self, request: Request) -> str | None:
        return None


@pytest.mark.parametrize(
    ("limiter", "of_project", "of_organisation", "expected"),
    [
        (ProjectRateLimiter, True, True, 20),
        (WithoutProjectOverrides, True, True, 10),
        (WithoutProjectOverrides, True, False, 1),
        (WithoutOrganisationOverrides, True, True, 20),
        (WithoutOrganisationOverrides, False, True, 1),
        (WithoutOrganisationOverrides, True, False, 20),
        (WithoutOrganisationOverrides, False, False, 1),
    ],
)
async def test_override_keys_skip_with_none(
    store: Store, serve: Serve, limiter: Any, of_project: bool, of_organisation: bool, expected: int
) -> None:
    if of_project:
        await set_rate_limit_override(store, 1, 2, "/search", max_requests=20, expiry=60)
    if of_organisation:
        await set_org_rate_limit_override(store, 1, "/search", max_requests=10, expiry=60)
    client = serve(limited(limiter(1, 60), store=store))
    assert client.get("/search", x_project="1:2").headers["ratelimit-policy"] == f'"requests";q={expected};w=60'


def request_of(scope: dict[str, Any]) -> Request:
    return Request({"type": "http", "method": "GET", "path": "/x", "headers": [], **scope})


async def test_override_keys_that_make_no_sense_are_told() -> None:
    class Torn(ProjectRateLimiter):
        def make_org_override_key(self, request: Request) -> str | None:
            return "ratelimit_org_override:/elsewhere:1"

    class Wrong(ProjectRateLimiter):
        def make_override_key(self, request: Request) -> str | None:
            return "/x:1:2"

    request = request_of({"state": {"organization_id": 1, "project_id": 2}})
    for limiter, problem in [
        (Torn(1, store=Store.memory()), "make_org_override_key: got 'ratelimit_org_override:/elsewhere:1'; expected"),
        (Wrong(1, store=Store.memory()), "expected ratelimit_override:{endpoint}:{organisation}:{project}"),
    ]:
        with pytest.raises(ValueError, match=re.escape(problem)):
            await limiter(request, Response())


async def test_a_limiter_without_a_store_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"call ratekeeper\.fastapi\.setup\(app, store=\.\.\.\)"):
        await PathRateLimiter(1)(request_of({}), Response())


@pytest.mark.parametrize("limiter", [ProjectRateLimiter, PathRateLimiter])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0,), "max_requests must be at least 1"), ((-5, 60), "max_requests must be at least 1"),
     ((1, 0), "expiry must be at least 1 second")],
)
def test_values_below_one_are_refused(limiter: Any, arguments: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}$"):
        limiter(*arguments)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"max_requests": 0}, "max_requests must be at least 1"), ({"expiry": 0}, "expiry must be at least 1 second"),
     ({"increment_amount": 0}, "increment_amount must be at least 1")],
)
@pytest.mark.parametrize("apply", [apply_rate_limit, apply_element_rate_limit])
async def test_values_below_one_are_refused_in_handlers(apply: Any, wrong: dict[str, int], words: str) -> None:
    right = {"max_requests": 1, "expiry": 1, "increment_amount": 1}
    with pytest.raises(ValueError, match=f"^{words}$"):
        await apply(request_of({}), Response(), **right | wrong)


def geocoder(store: Store) -> FastAPI:
    app = application(store)
    router = APIRouter(prefix="/geocode")

    @router.post("/batch")
    async def batch(request: Request, response: Response) -> dict[str, str]:
        await apply_rate_limit(request, response, max_requests=100, expiry=60)
        addresses = await request.json()
        await apply_element_rate_limit(request, response, max_requests=100, expiry=60, increment_amount=len(addresses))
        if len(addresses) > 50:
            await apply_rate_limit(request, response, max_requests=1, expiry=60, key_suffix="/heavy")
        return {"status": "ok"}

    app.include_router(router)
    return app


def test_handlers_count_elements_apart_from_requests(remote: Backend, serve: Serve) -> None:
    client, redis = serve(geocoder(remote.store())), remote.client()
    answer = client.post("/geocode/batch", ["a"] * 95, x_project="1:2")
    assert answer.limits == {
        "ratelimit-policy": '"requests";q=100;w=60, "elements";q=100;w=60, "heavy";q=1;w=60',
        "ratelimit": '"requests";r=99;t=60, "elements";r=5;t=60, "heavy";r=0;t=60',
    }
    assert {key: redis.get(key) for key in redis.keys("ratelimit:*")} == {
        "ratelimit:/geocode/batch:1:2": "1",
        "ratelimit:/geocode/batch/elements:1:2": "95",
        "ratelimit:/geocode/batch/heavy:1:2": "1",
    }


def test_a_cost_that_crosses_the_limit_is_denied_whole(store: Store, serve: Serve) -> None:
    client = serve(geocoder(store))

    def post(elements: int) -> tuple[int, str]:
        answer = client.post("/geocode/batch", ["a"] * elements, x_project="1:2")
        return answer.status, re.sub(r";t=\d+", "", answer.headers["ratelimit"])

    assert post(50) == (200, '"requests";r=99, "elements";r=50')
    assert post(45) == (200, '"requests";r=98, "elements";r=5')
    assert post(10) == (429, '"requests";r=97, "elements";r=5')
    assert post(5) == (200, '"requests";r=96, "elements";r=0')


async def test_overrides_know_the_suffix(store: Store, serve: Serve) -> None:
    await set_rate_limit_override(store, 1, 2, "/geocode/batch/elements", max_requests=3, expiry=10)
    answer = serve(geocoder(store)).post("/geocode/batch", ["a"] * 4, x_project="1:2")
    assert (answer.status, answer.headers["ratelimit-policy"]) == (429, '"requests";q=100;w=60, "elements";q=3;w=10')


def test_a_denial_carries_the_fields_of_all_limiters_before_it(store: Store, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(5, 60), PathRateLimiter(1, 30, policy_name="path"), store=store))
    assert client.get("/search", x_project="1:2").status == 200
    denied = client.get("/search", x_project="1:2")
    assert (denied.status, denied.json) == (429, DETAIL)
    assert denied.headers["ratelimit-policy"] == '"requests";q=5;w=60, "path";q=1;w=30'
    assert re.fullmatch(r'"requests";r=3;t=\d+, "path";r=0;t=\d+', denied.headers["ratelimit"])


def test_every_response_tells_whoever_made_it(serve: Serve) -> None:
    app = application(Store.memory())
    limiter = [Depends(PathRateLimiter(9, 60))]

    @app.get("/plain", dependencies=limiter)
    async def plain() -> Response:
        return PlainTextResponse("made by hand")

    @app.get("/stream", dependencies=limiter)
    async def stream() -> Response:
        return StreamingResponse(iter([b"a", b"b"]))

    @app.get("/missing", dependencies=limiter)
    async def missing() -> None:
        raise HTTPException(404, headers={"x-own": "kept"})

    @app.get("/invalid", dependencies=limiter)
    async def invalid(number: int) -> None: ...

    @app.get("/free")
    async def free() -> None: ...

    client = serve(app)
    for path, status in [("/plain", 200), ("/stream", 200), ("/missing", 404)]:
        answer = client.get(path)
        assert (answer.status, answer.headers["ratelimit-policy"]) == (status, '"requests";q=9;w=60'), path
    assert client.get("/missing").headers["x-own"] == "kept"
    assert client.get("/invalid").status == 422
    assert client.get("/free").limits == {}
    assert client.get("/nowhere").status == 404


@pytest.mark.parametrize("legacy", ["RateLimit", "X-RateLimit"])
def test_legacy_fields_by_switch(legacy: Any, serve: Serve) -> None:
    options = HttpOptions(body="detail", legacy=legacy)
    client = serve(limited(ProjectRateLimiter(1, 60), store=Store.memory(), options=options))
    for status in (200, 429):
        answer = client.get("/search", x_project="1:2")
        prefix = legacy.lower()
        assert answer.status == status
        assert answer.headers["ratelimit-policy"] == '"requests";q=1;w=60'
        assert answer.headers[f"{prefix}-limit"] == "1"
        assert answer.headers[f"{prefix}-remaining"] == "0"
        assert answer.headers[f"{prefix}-reset"] == "60"


def test_problem_documents_by_switch(serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(1, 60), store=Store.memory(), options=HttpOptions()))
    client.get("/search", x_project="1:2")
    denied = client.get("/search", x_project="1:2")
    assert (denied.status, denied.headers["content-type"]) == (429, "application/problem+json")
    assert denied.json["violated-policies"] == ["requests"]
    assert "ratelimit" in denied.headers


def test_handlers_of_exceptions_get_the_decision(serve: Serve) -> None:
    app = limited(ProjectRateLimiter(1, 60), store=Store.memory())

    @app.exception_handler(RateLimitExceeded)
    async def own(request: Request, error: RateLimitExceeded) -> Response:
        assert error.result is not None
        assert error.result.is_over_limit
        assert not error.decision.allowed
        return PlainTextResponse(f"{error.result.request_count} of {error.result.max_requests}", 420)

    client = serve(app)
    client.get("/search", x_project="1:2")
    denied = client.get("/search", x_project="1:2")
    assert (denied.status, denied.body) == (420, b"1 of 1")
    assert denied.headers["ratelimit-policy"] == '"requests";q=1;w=60', "also on a response of one's own"


def test_without_setup_a_limiter_brings_its_store(serve: Serve) -> None:
    app = FastAPI()
    limiters = [Depends(PathRateLimiter(1, 60, store=Store.memory())),
                Depends(PathRateLimiter(5, 60, "more", store=Store.memory()))]

    @app.get("/search", dependencies=limiters)
    async def search() -> None: ...

    client = serve(app)
    first, second = client.get("/search"), client.get("/search")
    assert (first.status, second.status) == (200, 429)
    assert first.headers["ratelimit"] == '"requests";r=0;t=60, "more";r=4;t=60'
    assert second.headers["ratelimit"] == '"requests";r=0;t=60'
    assert second.headers["retry-after"] == "60"


def test_other_algorithms(store: Store, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(2, 60, algorithm="sliding_log"), store=store))
    assert [client.get("/search", x_project="1:2").status for _ in range(3)] == [200, 200, 429]


def test_a_hundred_at_once_on_a_limit_of_five(store: Store, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(5, 600), store=store))
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(lambda _: client.get("/search", x_project="1:2").status, range(100)))
    assert sorted(statuses) == [200] * 5 + [429] * 95
