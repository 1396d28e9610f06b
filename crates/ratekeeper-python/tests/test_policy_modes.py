"""Modes of policies: of the call, of the policies, of the environment; all looked up with every check."""

from __future__ import annotations

import logging

import pytest
from conftest import Backend

from ratekeeper import Policies, PolicyLimiter, Request, ServiceLimiter

RULES = """
service = "s"
[[rules]]
name = "small"
caller_key = true
quota = "1/h fixed_window"
[[rules]]
name = "big"
caller_key = true
quota = "100/h fixed_window"
"""


@pytest.fixture(autouse=True)
def _without_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RATE_LIMIT_MODE", raising=False)


def service_on(backend: Backend, policies: Policies | None = None, rules: str = RULES) -> ServiceLimiter:
    policies = policies or Policies()
    policies.install(rules)
    return PolicyLimiter(backend.store(), policies).service("s")


def test_a_call_in_monitor_mode_is_counted_by_every_rule(backend: Backend) -> None:
    service = service_on(backend)
    decisions = [service.check(key="k", mode="monitor") for _ in range(5)]
    assert all(decisions) and decisions[-1].over_limit
    assert [verdict.remaining for verdict in decisions[-1].verdicts] == [0, 95]
    assert not any(verdict.enforced for verdict in decisions[-1].verdicts)
    assert not service.check(key="k"), "it was counted"


async def test_what_a_call_says_holds_whatever_the_policies_say(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    policies = Policies(mode="monitor")
    service = service_on(backend, policies)
    limiter = PolicyLimiter(backend.store(), policies)
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    assert service.check(key="k") and service.check(key="k").over_limit, "they were given one"
    assert not service.check(key="k", mode="on")
    assert not await service.acheck(Request(), key="k", mode="on")
    assert service.check(key="k", mode="off").origin == "unlimited"
    assert limiter.check("s", "l", mode="on") and limiter.check("s", "l", mode="monitor").over_limit
    assert (await limiter.acheck("s", "k", mode="off")).origin == "unlimited"
    assert not service.peek(key="k", mode="on")
    assert service.reserve(None, 1, "id", 60.0, key="k", mode="monitor").over_limit
    assert not service.until_allowed(None, 0.0, key="k", mode="on")
    with pytest.raises(ValueError, match='mode: got "maybe"; expected "on" or "monitor" or "off"'):
        service.check(key="k", mode="maybe")  # type: ignore[arg-type]


def test_the_environment_is_asked_with_every_check(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE_LIMIT_MODE", "monitor")
    policies = Policies()
    service = service_on(backend, policies)
    modes = lambda: {rule["mode"] for rule in policies.status()[0]["rules"]}  # noqa: E731
    assert service.check(key="k") and service.check(key="k").over_limit and modes() == {"monitor"}
    monkeypatch.setenv("RATE_LIMIT_MODE", "ON")
    assert not service.check(key="k") and modes() == {"on"}
    monkeypatch.setenv("RATE_LIMIT_MODE", "off")
    assert service.check(key="k").origin == "unlimited" and modes() == {"off"}
    assert not service.check(key="k", mode="on")
    monkeypatch.delenv("RATE_LIMIT_MODE")
    assert not service.check(key="k") and modes() == {"on"}
    # Some tests replace the whole of it.
    monkeypatch.setattr("os.environ", {"RATE_LIMIT_MODE": "monitor"})
    assert service.check(key="k").over_limit


def test_a_mode_that_is_none_is_logged_once_and_rules_are_enforced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RATE_LIMIT_MODE", "mabye")
    policies = Policies()
    policies.install(RULES)
    service = PolicyLimiter(None, policies).service("s")
    with caplog.at_level(logging.ERROR, "ratekeeper"):
        assert [bool(service.check(key="k")) for _ in range(3)] == [True, False, False]
    (text,) = (record.getMessage() for record in caplog.records if "RATE_LIMIT_MODE" in record.getMessage())
    assert 'RATE_LIMIT_MODE: got "mabye"; expected on, monitor or off' in text


def test_what_a_policy_says_holds_if_nobody_else_says_anything() -> None:
    policies = Policies()
    policies.install('mode = "monitor"\n' + RULES)
    service = PolicyLimiter(None, policies).service("s")
    assert service.check(key="k") and service.check(key="k").over_limit
    assert not service.check(key="k", mode="on")
