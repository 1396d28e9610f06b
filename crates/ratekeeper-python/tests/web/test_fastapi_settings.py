"""What FastAPI's limiters are told wrongly, and what they leave behind."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import logging
import weakref
from typing import Any

import pytest
from conftest import Backend
from fastapi import Depends, FastAPI, Request
from servers import wait_for

import ratekeeper.fastapi
from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import (
    KeyRateLimiter,
    PathRateLimiter,
    ProjectRateLimiter,
    RateLimitMode,
    RateLimitOverride,
    get_rate_limit_mode,
    setup,
)
from web.conftest import Serve
from web.fastapi_site import application, limited, messages_of

POLICIES = PolicyLimiter(None, Policies())


@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"store": "redis://x"}, TypeError, "store: expected Store or None, got str"),
        ({"policies": 3}, TypeError, "policies: expected PolicyLimiter or None, got int"),
        ({"policies": POLICIES, "service": 3}, TypeError, "service: expected str or None, got int"),
        ({"identify": 3}, TypeError, "identify: expected a function, got int"),
        ({"claims": 3}, TypeError, "claims: expected a function, got int"),
        ({"mode": "bogus"}, ValueError, "mode: got 'bogus'; expected 'on' or 'monitor' or 'off' or None"),
        ({"on_outage": "pray"}, ValueError, "on_outage: got 'pray'; expected 'allow' or 'deny' or 'local'"),
        ({"options": "x"}, TypeError, "options: expected HttpOptions, got str"),
        ({"body_bytes_max": -1}, ValueError, "body_bytes_max: got -1; expected 0 or more"),
        ({"body_wait": "x"}, TypeError, "body_wait: expected int or float, got str"),
    ],
)
def test_wrong_settings_are_told_at_once(options: dict[str, Any], kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=f"^{problem}$"):
        setup(FastAPI(), **options)


@pytest.mark.parametrize(
    ("make", "kind", "problem"),
    [
        (lambda: ProjectRateLimiter(5, 60, "é"), ValueError, "rule `é`: .*"),
        (lambda: ProjectRateLimiter(5, 60, ""), ValueError, "rule ``: .*"),
        (lambda: PathRateLimiter(5, on_outage="pray"), ValueError, "on_outage: got \"pray\"; .*"),  # type: ignore[arg-type]
        (lambda: PathRateLimiter(5, store="memory"), TypeError, "store: expected Store or None, got str"),  # type: ignore[arg-type]
        (lambda: KeyRateLimiter("s", 3), TypeError, "key_parser: expected a function, got int"),  # type: ignore[arg-type]
        (lambda: KeyRateLimiter("s", str, cost="x"), TypeError, "cost: expected int, got str"),  # type: ignore[arg-type]
        (lambda: setup(3), TypeError, "app: expected FastAPI, got int"),  # type: ignore[arg-type]
    ],
)
def test_wrong_limiters_are_told_at_once(make: Any, kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=f"^{problem}$"):
        make()


@pytest.mark.parametrize("wrong", ["a word", "an exception"])
def test_a_wrong_mode_enforces_and_is_logged_once(
    serve: Serve, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    def mode() -> Any:
        if wrong == "a word":
            return "bogus"
        raise KeyError("settings")

    client = serve(limited(ProjectRateLimiter(1, 60), store=Store.memory(), mode=mode))
    with caplog.at_level(logging.ERROR, "ratekeeper"):
        assert [client.get("/search", x_project="1:2").status for _ in range(3)] == [200, 429, 429]
    told = [record.message for record in caplog.records]
    assert len(told) <= 1 and all("rate limits are enforced: the function for the mode" in text for text in told)


@dataclasses.dataclass
class Tiered(ProjectRateLimiter):
    """As with Application Kit, whose limiters are dataclasses."""

    tier: str = "basic"

    def make_key(self, request: Request) -> str | None:
        key = super().make_key(request)
        return key and f"{key}:{self.tier}"


def test_limiters_can_be_dataclasses(serve: Serve) -> None:
    limiter = Tiered(max_requests=1, expiry=60, tier="gold")
    assert (limiter.quota.limit, limiter.tier) == (1, "gold")
    with pytest.raises(ValueError, match="max_requests must be at least 1"):
        Tiered(0)
    client = serve(limited(limiter, Tiered(5, 60, "other"), store=Store.memory()))
    assert [client.get("/search", x_project="1:2").status for _ in range(2)] == [200, 429]


def test_limiters_say_what_they_are() -> None:
    shown = repr(ProjectRateLimiter(5, 60))
    assert shown.startswith("ProjectRateLimiter(max_requests=5, expiry=60, policy_name='requests'")
    assert ProjectRateLimiter(5, 60) != ProjectRateLimiter(5, 60), "two dependencies"


def test_names_of_application_kit_are_there() -> None:
    names = [
        "set_rate_limit_override", "get_rate_limit_override", "delete_rate_limit_override",
        "list_rate_limit_overrides", "clear_project_rate_limit_overrides", "set_org_rate_limit_override",
        "get_org_rate_limit_override", "delete_org_rate_limit_override", "list_org_rate_limit_overrides",
        "clear_org_rate_limit_overrides", "RateLimiter", "PathRateLimiter", "ProjectRateLimiter",
        "RateLimitOverride", "is_rate_limit_disabled", "apply_rate_limit", "apply_element_rate_limit",
        "get_rate_limit_mode", "RateLimitMode", "RateLimitResult",
    ]
    assert set(names) <= set(ratekeeper.fastapi.__all__)
    assert all(hasattr(ratekeeper.fastapi, name) for name in ratekeeper.fastapi.__all__)
    override = RateLimitOverride(max_requests=5, expiry=60)
    assert (override.model_dump(), copy.copy(override)) == ({"max_requests": 5, "expiry": 60}, override)
    assert get_rate_limit_mode() == RateLimitMode.on


def test_modes_can_be_names_of_application_kit(serve: Serve) -> None:
    client = serve(limited(ProjectRateLimiter(1, 60), store=Store.memory(), mode=lambda: RateLimitMode.monitor.value))
    assert [client.get("/search", x_project="1:2").status for _ in range(2)] == [200, 200]
    client = serve(limited(ProjectRateLimiter(1, 60), store=Store.memory(), mode=RateLimitMode.off))
    assert [client.get("/search", x_project="1:2").limits for _ in range(2)] == [{}, {}]


def test_applications_take_their_connections_along(redis_backend: Backend) -> None:
    client = redis_backend.client()

    def connections() -> int:
        gc.collect()
        return len(client.client_list())

    apps: list[weakref.ref[FastAPI]] = []

    def use_one() -> None:
        app = application(redis_backend.store(), identify=lambda request: (1, 2))
        app.get("/search", dependencies=[Depends(ProjectRateLimiter(9, 60))])(lambda: None)
        apps.append(weakref.ref(app))
        assert asyncio.run(messages_of(app, "/search"))[0]["status"] == 200

    before = connections()
    for _ in range(5):
        use_one()
    wait_for(lambda: connections() <= before)
    assert not any(app() for app in apps)
