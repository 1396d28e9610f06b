"""Limits from within handlers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import Backend
from fastapi import APIRouter, FastAPI, Request, Response

from ratekeeper import Store
from ratekeeper.fastapi import apply_element_rate_limit, apply_rate_limit
from ratekeeper.overrides import set_rate_limit_override
from web.conftest import Serve
from web.fastapi_site import application, request_of


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


async def test_an_increment_that_is_no_number_is_told() -> None:
    with pytest.raises(TypeError, match="^increment_amount: expected int, got str$"):
        await apply_rate_limit(request_of({}), Response(), 5, 60, increment_amount="3")  # type: ignore[arg-type]
