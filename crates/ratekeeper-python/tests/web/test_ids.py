"""Organisations and projects as clients may make them: any text, and never a failure."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Backend
from fastapi import Depends, FastAPI, Request

from ratekeeper import keys
from ratekeeper.fastapi import ProjectRateLimiter, setup
from web.fastapi_site import messages_of

ODD = ["", "x" * 129, "x" * 2_000, "\ud800", "%", ":", "a:b", "%sha256-", "0" * 5_000, "é" * 100]


def test_ids_of_any_kind_have_keys_of_their_own() -> None:
    made = [make(odd) for odd in ODD for make in (lambda odd: keys.make_override_key("/e", odd, 2),)]
    assert len(set(made)) == len(ODD)
    assert all(len(key.encode()) < 1_024 for key in made)
    for key in made:
        endpoint, organisation, project = keys.parse_override_key(key)
        assert (endpoint, project) == ("/e", 2) and organisation


class Regional(ProjectRateLimiter):
    def make_key(self, request: Request) -> str | None:
        key = super().make_key(request)
        return key and f"{key}:eu"


@pytest.mark.parametrize("kind", [Regional, ProjectRateLimiter])
async def test_ids_of_any_kind_are_limited(backend: Backend, kind: type[ProjectRateLimiter]) -> None:
    found: list[Any] = []
    app = FastAPI()
    setup(app, store=backend.store(), identify=lambda request: found[0])
    app.get("/", dependencies=[Depends(kind(1, 60))])(lambda: None)
    for odd in ODD:
        for found[:] in ([(odd, 1)], [(1, odd)]):
            statuses = [(await messages_of(app, "/"))[0]["status"] for _ in range(2)]
            assert statuses == [200, 429], found
