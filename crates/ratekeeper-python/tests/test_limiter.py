"""Rules in code: keys, tiers, costs, refunds, reservations, waits; in both forms of every call."""

from __future__ import annotations

import time
from typing import Any

import pytest
from conftest import Backend

from ratekeeper import Limiter, ManualClock, Quota, RateLimitResult, Rule, Store


def test_layers_are_all_or_nothing(store: Store) -> None:
    limiter = Limiter(store, [Rule("per-user", "5/60s fixed_window"), Rule("all", "2/60s fixed_window", everyone=True)])
    assert limiter.check("ann") and limiter.check("bob")
    denied = limiter.check("ann")
    assert not denied and not denied.allowed and denied.over_limit
    assert [verdict.denied for verdict in denied.verdicts] == [False, True]
    assert [verdict.remaining for verdict in denied.verdicts] == [4, 0], "nothing was charged"
    assert denied.strictest is not None and denied.strictest.name == "all"
    assert 0 < denied.retry_after <= 60
    assert denied.explain().startswith("denied by all: 0 of 2 left (2/min fixed_window), 1 asked for")


async def test_every_call_has_a_form_that_is_awaited(store: Store) -> None:
    limiter = Limiter(store, Rule("r", "5/60s fixed_window"))
    decision = await limiter.acheck("a", cost=2)
    assert (await limiter.apeek("a")).verdicts[0].remaining == 3
    await limiter.arefund(decision, 1)
    assert limiter.peek("a").verdicts[0].remaining == 4
    assert (await limiter.areserve("a", 3, "id", 60)).allowed
    assert await limiter.asettle("id", 1) == "done"
    assert limiter.peek("a").verdicts[0].remaining == 3
    assert await limiter.acancel("unknown") == "unknown"
    assert (await limiter.auntil_allowed("a", 1)).allowed
    assert await limiter.areset("a") == 1
    assert limiter.peek("a").verdicts[0].remaining == 5
    assert (await limiter.acheck_project("/x", 1, 2)).allowed


def test_what_is_charged_can_be_given_back(store: Store) -> None:
    limiter = Limiter(store, Rule("r", "5/60s fixed_window"))
    other = Limiter(store, Rule("r", "5/60s fixed_window"))
    decision = limiter.check("a", cost=3)
    assert decision.verdicts[0].charged and decision.verdicts[0].receipt is not None
    limiter.refund(decision, 1)
    assert limiter.peek("a").verdicts[0].remaining == 3
    limiter.refund(decision)
    assert limiter.peek("a").verdicts[0].remaining == 5
    with pytest.raises(ValueError, match="expected one of this limiter"):
        other.refund(decision)
    with pytest.raises(ValueError, match="units: got -1; expected 0 or more"):
        limiter.refund(decision, -1)


def test_reservations_are_charged_once_and_settled(store: Store) -> None:
    limiter = Limiter(store, Rule("tokens", "100/60s fixed_window"))
    first = limiter.reserve("a", 40, "call-1", 60)
    again = limiter.reserve("a", 40, "call-1", 60)
    assert (first.origin, again.origin) == ("store", "repeat")
    assert limiter.peek("a").verdicts[0].remaining == 60
    assert limiter.settle("call-1", 55) == "done"
    assert limiter.peek("a").verdicts[0].remaining == 45
    assert limiter.settle("call-1", 55) == "already"
    assert limiter.reserve("a", 40, "call-2", 60)
    assert limiter.cancel("call-2") == "done"
    assert limiter.peek("a").verdicts[0].remaining == 45
    with pytest.raises(ValueError, match="a new id for each check"):
        limiter.reserve("b", 40, "call-1", 60)


@pytest.mark.parametrize(
    "text",
    ["10/s", "10/s burst 20", "10/s fixed_window", "10/s sliding_window", "10/s sliding_log",
     "10/s leaky_bucket queue 10", "10/s concurrency", "10 per calendar day"],
)
def test_quotas_of_every_algorithm(store: Store, text: str) -> None:
    limiter = Limiter(store, Rule("r", text))
    decision = limiter.check("a")
    assert decision.allowed
    verdict = decision.verdicts[0]
    assert verdict.remaining == verdict.quota.capacity - 1
    assert decision.holds == (verdict.quota.algorithm == "concurrency")


def test_tiers_are_quotas_of_their_own(store: Store) -> None:
    limiter = Limiter(store, Rule("api", {"rps": 20, "rpm": 1000, "daily": "5000/1d sliding_window"}))
    names = [(name, str(quota)) for name, quota in limiter.rules[0].quotas]
    assert names == [
        ("api.rps", "20/s fixed_window"),
        ("api.rpm", "1000/min fixed_window"),
        ("api.daily", "5000/d sliding_window"),
    ]
    assert [verdict.remaining for verdict in limiter.check("a", cost=2).verdicts] == [18, 998, 4998]


def test_keys_come_from_the_caller_a_mapping_or_a_function(store: Store) -> None:
    def key_of(request: Any) -> str | None:
        user: str | None = request["user"]
        return user

    limiter = Limiter(store, [Rule("user", "5/60s", key=key_of), Rule("all", "9/60s", everyone=True)])
    assert [verdict.name for verdict in limiter.check({"user": "ann"}).verdicts] == ["user", "all"]
    assert [verdict.name for verdict in limiter.check({"user": None}).verdicts] == ["all"]
    with pytest.raises(KeyError):
        limiter.check({})
    named = Limiter(store, [Rule("ip", "5/60s"), Rule("token", "5/60s")])
    assert [verdict.name for verdict in named.check({"token": "t"}).verdicts] == ["token"]
    assert [verdict.name for verdict in named.check({"token": "t", "ip": None}).verdicts] == ["token"]
    assert len(named.check("x").verdicts) == 2
    with pytest.raises(ValueError, match=r"""got keys for \["tokn"\]; expected some of \["ip", "token"\]"""):
        named.check({"tokn": "t"})
    with pytest.raises(TypeError, match="rule `ip` has no key function"):
        named.check(42)
    with pytest.raises(TypeError, match="the key of rule `user`: expected str or None, got int"):
        limiter.check({"user": 42})


def test_a_cost_of_nothing_only_tells(store: Store) -> None:
    limiter = Limiter(store, [Rule("units", "5/60s"), Rule("calls", "3/60s", per_request=True)])
    assert limiter.check("a", cost=0).verdicts[0].remaining == 5
    assert [verdict.remaining for verdict in limiter.check("a", cost=5).verdicts] == [0, 1]
    never = limiter.check("b", cost=6)
    assert not never and never.retry_after == float("inf")


def test_modes_per_call(store: Store) -> None:
    limiter = Limiter(store, Rule("r", "1/60s fixed_window"))
    assert limiter.check("a", mode="off").origin == "unlimited"
    assert limiter.check("a").allowed
    watched = limiter.check("a", mode="monitor")
    assert watched.allowed and watched.over_limit and not watched.verdicts[0].enforced
    assert not limiter.check("a", mode="on")
    watching = Limiter(store, Rule("r", "1/60s fixed_window", mode="monitor"))
    assert watching.check("a", mode="on").over_limit


def test_waiting_until_it_is_allowed(backend: Backend) -> None:
    limiter = Limiter(backend.store(), Rule("drip", "10/s leaky_bucket queue 5"))
    start = time.monotonic()
    for _ in range(4):
        assert limiter.until_allowed("a", 5)
    assert 0.29 < time.monotonic() - start < 5
    limiter = Limiter(backend.store(), Rule("drip", "1/10s leaky_bucket queue 5"))
    assert limiter.check("b") and limiter.check("b").proceed_after > 0
    impatient = limiter.until_allowed("b", 0.01)
    assert not impatient and impatient.explain().startswith("given up: drip")


async def test_waiting_in_a_loop(backend: Backend) -> None:
    limiter = Limiter(backend.store(), Rule("r", "1/200ms fixed_window"))
    start = time.monotonic()
    assert limiter.check("a")
    assert (await limiter.auntil_allowed("a", 5)).allowed
    assert 0.19 < time.monotonic() - start < 5


def test_what_takes_no_io_can_be_asked_for(backend: Backend) -> None:
    limiter = Limiter(backend.store(), Rule("r", "1/60s"))
    decision = limiter.try_check("a")
    assert (decision is None) == (backend.server is not None)


def test_time_passes_by_the_clock_of_the_store(backend: Backend, clock: ManualClock) -> None:
    limiter = Limiter(backend.store(clock=clock), Rule("r", "1/10s fixed_window"))
    assert limiter.check("a")
    denied = limiter.check("a")
    assert denied.retry_after == 10.0 and denied.at == 1_700_000_000.0
    clock.advance(9.999999)
    assert not limiter.check("a")
    clock.advance(0.000001)
    assert limiter.check("a")


def test_results_in_the_words_of_application_kit(store: Store) -> None:
    limiter = Limiter(store, Rule("requests", Quota.fixed_window(3, 60)))
    result = RateLimitResult.of(limiter.check("a", cost=2))
    assert result is not None
    assert (result.is_over_limit, result.request_count, result.max_requests, result.remaining) == (False, 2, 3, 1)
    assert 0 < result.ttl <= 60
    assert result.to_headers() == {
        "RateLimit-Limit": "3", "RateLimit-Remaining": "1", "RateLimit-Reset": str(result.ttl),
    }
    over = RateLimitResult.of(limiter.check("a", cost=2))
    assert over is not None and over.is_over_limit and over.request_count == 2
    assert RateLimitResult.of(limiter.check("a", mode="off")) is None
    with pytest.raises(AttributeError):
        result.ttl = 5  # type: ignore[misc]
