"""FastAPI's limiters: whose limit it is, and what requests meet."""

from __future__ import annotations

import concurrent.futures
import re
from typing import Any

import pytest
from conftest import Backend
from fastapi import Depends, Request, Response

from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import (
    KeyRateLimiter,
    PathRateLimiter,
    ProjectRateLimiter,
    RateLimiter,
    is_rate_limit_disabled,
    make_override_key,
    make_path_rate_limit_key,
    project_of_state,
)
from ratekeeper.overrides import (
    delete_rate_limit_override,
    set_org_rate_limit_override,
    set_rate_limit_override,
)
from web.conftest import Serve
from web.fastapi_site import DETAIL, application, limited, request_of

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


class RegionalOverrides(RegionLimiter):
    """A project may have an override in each region, else it has its organisation's."""

    def make_override_key(self, request: Request) -> str | None:
        key = super().make_override_key(request)
        return key and f"{key}:{request.headers.get('x-region', 'default')}"


async def test_overrides_of_project_and_organisation_can_stand_in_different_places(
    remote: Backend, serve: Serve
) -> None:
    store, redis = remote.store(), remote.client()
    client = serve(limited(RegionalOverrides(1, 60), store=store))

    def limit_in(region: str) -> str:
        return client.get("/search", x_project="1:2", x_region=region).headers["ratelimit-policy"]

    redis.hset("ratelimit_override:/search:1:2:eu", mapping={"max_requests": "30", "expiry": "60"})
    assert (limit_in("eu"), limit_in("us")) == ('"requests";q=30;w=60', '"requests";q=1;w=60')
    await set_org_rate_limit_override(store, 1, "/search", max_requests=20, expiry=60)
    assert (limit_in("eu"), limit_in("us")) == ('"requests";q=30;w=60', '"requests";q=20;w=60')


class SharedOverrides(ProjectRateLimiter):
    """One override for a group of endpoints."""

    def make_override_key(self, request: Request) -> str | None:
        project = project_of_state(request)
        return project and make_override_key("/searches", *project)


async def test_a_group_of_endpoints_can_have_one_override(store: Store, serve: Serve) -> None:
    await set_rate_limit_override(store, 1, 2, "/searches", max_requests=20, expiry=60)
    client = serve(limited(SharedOverrides(1, 60), store=store))
    assert client.get("/search", x_project="1:2").headers["ratelimit-policy"] == '"requests";q=20;w=60'


async def test_override_keys_that_make_no_sense_are_told() -> None:
    class Wrong(ProjectRateLimiter):
        def make_override_key(self, request: Request) -> str | None:
            return "/x:1:2"

    request = request_of({"state": {"organization_id": 1, "project_id": 2}})
    problem = "expected ratelimit_override:{endpoint}:{organisation}:{project}"
    with pytest.raises(ValueError, match=re.escape(problem)):
        await Wrong(1, store=Store.memory())(request, Response())


class ApiKeyLimiter(RateLimiter):
    def make_key(self, request: Request) -> str | None:
        return request.headers.get("x-api-key")


def by_policy(store: Store) -> KeyRateLimiter:
    policies = Policies()
    policies.install('service = "s"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "1/m"\n')
    return KeyRateLimiter("s", lambda request: request.headers.get("x-api-key"), policies=PolicyLimiter(store, policies))


@pytest.mark.parametrize("kind", ["limiter", "policy"])
def test_an_empty_key_is_a_key(store: Store, serve: Serve, kind: str) -> None:
    client = serve(limited(ApiKeyLimiter(1, 60) if kind == "limiter" else by_policy(store), store=store))
    statuses = [client.get("/search", x_api_key=key).status for key in ("", "", "a")]
    assert statuses == [200, 429, 200], "whoever sends an empty one shares a limit with all who do"
    assert client.get("/search").limits == {}


async def test_a_key_that_is_no_text_is_told() -> None:
    class Numbered(RateLimiter):
        def make_key(self, request: Request) -> Any:
            return 7

    with pytest.raises(TypeError, match="^make_key: expected str or None, got int$"):
        await Numbered(1, store=Store.memory())(request_of({}), Response())


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


def test_other_algorithms(store: Store, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(2, 60, algorithm="sliding_log"), store=store))
    assert [client.get("/search", x_project="1:2").status for _ in range(3)] == [200, 200, 429]


def test_a_hundred_at_once_on_a_limit_of_five(store: Store, serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(5, 600), store=store))
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(lambda _: client.get("/search", x_project="1:2").status, range(100)))
    assert sorted(statuses) == [200] * 5 + [429] * 95
