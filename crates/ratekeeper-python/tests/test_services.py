"""Services without a policy: their names may be mistyped, so they are told of, once, or refused."""

from __future__ import annotations

import logging

import pytest

from ratekeeper import Policies, PolicyLimiter, Request

POLICY = 'service = "{}"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "1/1h"\n'


def limiter(**options: object) -> PolicyLimiter:
    policies = Policies(**options)  # type: ignore[arg-type]
    for service in ("api", "search"):
        policies.install(POLICY.format(service))
    return PolicyLimiter(None, policies)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "without a policy" in record.getMessage()]


def test_a_mistyped_service_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    asked = limiter()
    with caplog.at_level(logging.WARNING, "ratekeeper"):
        for _ in range(3):
            assert asked.check("apii", "ann").allowed
        (line,) = lines(caplog)
    assert 'service="apii"' in line and '"api", "search"' in line.replace("\\", "")


def test_the_same_of_the_limits_of_a_service(caplog: pytest.LogCaptureFixture) -> None:
    asked = limiter()
    service = asked.service("apii")
    with caplog.at_level(logging.WARNING, "ratekeeper"):
        for _ in range(3):
            assert service.check(Request(), key="ann").allowed
        assert len(lines(caplog)) == 1
        asked.policies.install(POLICY.format("apii"))
        assert [service.check(Request(), key="ann").allowed for _ in range(2)] == [True, False]


def test_names_of_requests_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    asked = limiter()
    with caplog.at_level(logging.WARNING, "ratekeeper"):
        for number in range(1_000):
            assert asked.check(f"made-up-{number}", "ann").allowed
        told = lines(caplog)
    assert len(told) == 65, "64 of them, and that there are more"
    assert told[-1].startswith("further services without a policy")


def test_services_without_a_policy_can_be_refused() -> None:
    asked = limiter(unknown_services="refuse")
    told = '^name: got service "apii", which has no policy; expected one of "api", "search"$'
    with pytest.raises(ValueError, match=told):
        asked.check("apii", "ann")
    with pytest.raises(ValueError, match=told):
        asked.service("apii")
    assert [asked.check("api", "ann").allowed for _ in range(2)] == [True, False]
    assert asked.service("search").check(Request(), key="ann").allowed
    with pytest.raises(ValueError, match="expected one of none, because no policy is in force"):
        PolicyLimiter(None, Policies(unknown_services="refuse")).service("api")
    with pytest.raises(ValueError, match='unknown_services: got "raise"; expected "log" or "refuse"'):
        Policies(unknown_services="raise")  # type: ignore[arg-type]
