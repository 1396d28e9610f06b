"""FastAPI: `setup(mode=...)` and RATE_LIMIT_MODE govern policies as they govern limiters."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Backend
from fastapi import Depends, FastAPI

from ratekeeper import Policies, PolicyLimiter, Store
from ratekeeper.fastapi import KeyRateLimiter, RateLimitMode, setup
from web.fastapi_site import messages_of

RULES = """
service = "s"
[[rules]]
name = "small"
KEY
quota = "1/h fixed_window"
[[rules]]
name = "big"
KEY
quota = "100/h fixed_window"
"""
KINDS = ["door", "key"]


def application(kind: str, store: Store, mode: Any = None, policies: Policies | None = None, rules: str = RULES) -> FastAPI:
    """Two rules at the door, or by a key that is found behind it."""
    policies = policies or Policies()
    policies.install(rules.replace("KEY", 'keys = "all"' if kind == "door" else "caller_key = true"))
    app = FastAPI()
    setup(app, policies=PolicyLimiter(store, policies), service="s" if kind == "door" else None, mode=mode)
    dependencies = [] if kind == "door" else [Depends(KeyRateLimiter("s", lambda request: "k"))]
    app.get("/", dependencies=dependencies)(lambda: None)
    return app


async def met(app: FastAPI) -> tuple[int, str]:
    """Status, and what is left."""
    start = (await messages_of(app, "/"))[0]
    return start["status"], dict(start["headers"]).get(b"ratelimit", b"").decode()


async def statuses(app: FastAPI, count: int) -> list[int]:
    return [(await met(app))[0] for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["monitor", RateLimitMode.monitor, lambda: RateLimitMode.monitor])
async def test_monitor_mode_counts_by_every_rule(backend: Backend, kind: str, mode: Any) -> None:
    app = application(kind, backend.store(), mode)
    answers = [await met(app) for _ in range(5)]
    assert [status for status, _ in answers] == [200] * 5
    assert answers[-1][1].startswith('"small";r=0;') and '"big";r=95;' in answers[-1][1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_function_is_asked_with_every_request(kind: str) -> None:
    modes: list[Any] = ["monitor", "monitor", "on", "off", "on", None]
    app = application(kind, Store.memory(), lambda: modes.pop(0))
    assert await statuses(app, 6) == [200, 200, 429, 200, 429, 429]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_setup_says_stands_above_the_environment(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("RATE_LIMIT_MODE", "monitor")
    app = application(kind, Store.memory(), "on")
    assert await statuses(app, 2) == [200, 429]
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    assert await statuses(app, 1) == [429]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_environment_is_read_with_every_request(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("RATE_LIMIT_MODE", "monitor")
    app = application(kind, Store.memory())
    assert await statuses(app, 3) == [200] * 3
    monkeypatch.setenv("RATE_LIMIT_MODE", "on")
    assert await statuses(app, 1) == [429]
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    assert await met(app) == (200, "")


@pytest.mark.parametrize("kind", KINDS)
async def test_what_policies_say_holds_if_setup_says_nothing(kind: str) -> None:
    for policies, rules in [(Policies(mode="monitor"), RULES), (Policies(), 'mode = "monitor"\n' + RULES)]:
        app = application(kind, Store.memory(), None, policies, rules)
        assert await statuses(app, 3) == [200] * 3
        said = application(kind, Store.memory(), "on", policies, rules)
        assert await statuses(said, 2) == [200, 429]
