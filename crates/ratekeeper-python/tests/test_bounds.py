"""Numbers and names of any size: denied, or told in words; never an OverflowError, never half a character."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import Backend

from ratekeeper import (
    Charge, Limiter, ManualClock, Policies, PolicyLimiter, Quota, Request, Rule, Store, Tally, keys,
)

MOST = 10**9
COSTS = [MOST + 1, 2 * MOST, 2**63 - 1, 2**63, 2**70, 10**400]
ALGORITHMS = ["fixed_window", "sliding_window", "token_bucket", "leaky_bucket"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_cost_beyond_every_limit_is_denied_for_ever_and_leaves_no_trace(backend: Backend, algorithm: str) -> None:
    limiter = Limiter(backend.store(), Rule("most", f"{MOST}/31d {algorithm}"))
    for cost in COSTS:
        decision = limiter.check("a", cost=cost)
        assert not decision.allowed and decision.retry_after == float("inf"), cost
        assert decision.origin == "store" and decision.denial() is not None
        assert decision.denial().status == 429  # type: ignore[union-attr]
    assert limiter.reset("a") == 0, "no trace"
    if algorithm != "leaky_bucket":
        assert limiter.check("a", cost=MOST).allowed, "all of it is there"


async def test_every_call_that_takes_a_cost_takes_any(backend: Backend) -> None:
    store = backend.store()
    limiter = Limiter(store, Rule("most", f"{MOST}/31d fixed_window"))
    policies = Policies()
    policies.install(f'service = "s"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "{MOST}/31d fixed_window"')
    service = PolicyLimiter(store, policies)
    for cost in (2 * MOST, 2**70):
        assert not await limiter.acheck("a", cost=cost)
        assert not limiter.check_project("/x", 1, 2, cost=cost)
        assert not await limiter.acheck_project("/x", 1, 2, cost=cost)
        assert not limiter.reserve("a", cost, "id", 60.0)
        assert limiter.settle("id", 1) == "unknown", "what was denied is not held"
        assert not service.check("s", "k", cost=cost)
        assert not await service.acheck("s", "k", cost=cost)
        assert not service.service("s").check(Request(), key="k", cost=cost)
        charge = Charge("c", f"{MOST}/31d fixed_window", "k", cost=cost)
        assert not store.check(charge) and not await store.acheck(charge)
        watched = limiter.check("a", cost=cost, mode="monitor")
        assert watched.allowed and watched.over_limit and not any(verdict.charged for verdict in watched.verdicts)
    assert limiter.check("a", cost=MOST) and service.check("s", "k", cost=MOST)


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: Quota.fixed_window(2**70), "^max_requests: got a number beyond 2.63; expected at most 1000000000$"),
    (lambda: Quota.fixed_window(-(2**70)), "^max_requests must be at least 1$"),
    (lambda: Quota.fixed_window(1, 2**70), "^expiry: got 1.18.*e21 seconds; expected at most 3.2e10$"),
    (lambda: Quota.fixed_window(1, 10**400), "^expiry: got inf seconds; expected at most"),
    (lambda: Store.memory(max_keys=2**70), "^max_keys: got .*; expected a whole number from 1"),
    (lambda: Store.redis("redis://127.0.0.1", connections=-1), "^connections: got -1; expected 1 to 64 connections$"),
    (lambda: Store.redis("redis://127.0.0.1", connections=2**70), "^connections: got a number beyond|1 to 64 connections"),
    (lambda: Store.redis("redis://127.0.0.1", queue_max=-1), "^queue_max: got -1"),
    (lambda: Store.redis("redis://127.0.0.1", replicas=-1), "^replicas: got -1"),
    (lambda: Store.redis("redis://127.0.0.1", replicas=17), "17 replicas to wait for"),
    (lambda: Store.redis("redis://127.0.0.1", breaker_calls_min=2**40), "^breaker_calls_min: got 1099511627776"),
    (lambda: Store.redis("redis://127.0.0.1", deadline=10**400), "^deadline: got inf seconds"),
    (lambda: Limiter(None, Rule("r", "1/s"), instances=2**70), "^instances: got"),
    (lambda: Limiter(None, Rule("r", "1/s")).check("a", cost=-(2**70)), "^cost: got a number below -2.63; expected 0 or more$"),
    (lambda: Limiter(None, Rule("r", "1/s")).until_allowed("a", 10**400), "^patience: got inf"),
    (lambda: Limiter(None, Rule("r", "1/s")).settle("id", 2**70), "got"),
    (lambda: Store.memory().set_override("/x", 1, 2, max_requests=2**70), "^max_requests: got"),
    (lambda: Store.memory().set_override("/x", 1, 2, max_requests=1, ttl=2**70), "^override_ttl: got"),
    (lambda: Store.memory().set_switch(enforce_percent=2**70), "^enforce_percent: got"),
    (lambda: Store.memory().set_switch(seconds=10**400), "^seconds: got inf"),
    (lambda: ManualClock().set_micros(-1), "^micros: got -1; expected 0 or more$"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_numbers_that_are_too_large_are_told_with_their_argument(number: int) -> None:
    call, words = WRONG[number]
    with pytest.raises(ValueError, match=words):
        call()


def test_a_policy_that_is_no_text() -> None:
    with pytest.raises(TypeError, match="^document: expected str or bytes, got int$"):
        Policies().install(5)  # type: ignore[arg-type]


IDS = ["", "x" * 2_000, "\ud800", "x" * 129, "ü" * 65, "a:b", "%", "12", 12, 2**70]


@pytest.mark.parametrize("number", range(len(IDS)))
def test_organisations_and_projects_may_be_called_anything(backend: Backend, number: int) -> None:
    id = IDS[number]
    store = backend.store()
    limiter = Limiter(store, Rule("r", "2/1h fixed_window"))
    for organisation, project in ((id, 7), (7, id), (id, id)):
        assert limiter.check_project("/x", organisation, project).verdicts[0].remaining == 1
        assert limiter.check("k", organisation=organisation, project=project, endpoint="/y").allowed
        limiter.reset("k")
        store.set_override("/x", organisation, project, max_requests=5)
        assert store.get_override("/x", organisation, project) is not None
        assert limiter.check_project("/x", organisation, project).verdicts[0].limit == 5


def test_nobody_is_called_like_another_who_is_hashed() -> None:
    limiter = Limiter(Store.memory(), Rule("r", "1/1h fixed_window"))
    long = "x" * 2_000
    key = keys.make_rate_limit_key("/x", long, 7)
    assert limiter.check_project("/x", long, 7)
    hashed = key.split(":")[2]
    assert hashed.startswith("%sha256-") and limiter.check_project("/x", hashed, 7), "it is somebody else's name"
    assert not limiter.check_project("/x", long, 7)


def test_everything_says_what_it_is() -> None:
    policies = Policies()
    policies.install('service = "s"\n[[rules]]\nname = "r"\nkeys = "{client.ip}"\nquota = "1/h"')
    limiter = PolicyLimiter(None, policies)
    plain = Limiter(None, Rule("r", "1/h"))
    plain.check("a")
    shown = [
        repr(policies), repr(limiter), repr(limiter.service("s")), repr(limiter.service("s").needs), repr(plain.outages),
        repr(Request("POST", "/a?secret=1")), repr(plain.check("a").denial()), repr(Tally()), repr(ManualClock(1)),
    ]
    assert shown == [
        '<Policies: ["s"]>', '<PolicyLimiter in memory: ["s"]>', "<ServiceLimiter in memory: s>", "<Needs: client>",
        "<Outages: 0 allowed, 0 denied, 0 local>", "<Request: POST /a>", "<Denial: 429, retry after 3600 s>",
        "<Tally: nothing>", "<ManualClock: 1000000 us>",
    ]
