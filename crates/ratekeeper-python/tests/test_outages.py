"""A store that is away: what the rules say then, and how it comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import DEADLINE
from servers import RedisServer, nobody, wait_for

from ratekeeper import Limiter, Policies, PolicyLimiter, Rule, Store, StoreError


@pytest.fixture
def away() -> Iterator[Store]:
    """A store where nobody answers."""
    with nobody() as port:
        yield Store.redis(f"redis://127.0.0.1:{port}", deadline=0.2)


def test_rules_decide_when_the_store_is_away(away: Store) -> None:
    store = away
    allows = Limiter(store, Rule("r", "1/1h"))
    denies = Limiter(store, Rule("r", "1/1h", on_outage="deny"))
    local = Limiter(store, Rule("r", "4/1h fixed_window", on_outage="local"), instances=2)
    for _ in range(3):
        decision = allows.check("a")
        assert decision.allowed and decision.origin == "outage" and not decision.verdicts
    denied = denies.check("a")
    assert not denied and denied.origin == "outage"
    denial = denied.denial()
    assert denial is not None and denial.status == 503
    assert [local.check("a").allowed for _ in range(3)] == [True, True, False], "half of four"
    assert allows.outages.allowed == 3 and denies.outages.denied == 1 and local.outages.local == 3


def test_monitor_mode_denies_nobody_when_the_store_is_away(away: Store) -> None:
    denies = Limiter(away, Rule("r", "1/1h", on_outage="deny"))
    assert denies.check("a", mode="monitor") and not denies.check("a")
    assert Limiter(away, Rule("r", "1/1h", on_outage="deny", mode="monitor")).check("a")
    policies = Policies()
    policies.install('service = "s"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "1/h"\non_outage = "deny"\n')
    service = PolicyLimiter(away, policies).service("s")
    assert service.check(key="k", mode="monitor") and not service.check(key="k", mode="on")


def test_stores_themselves_raise(away: Store) -> None:
    store = away
    with pytest.raises(StoreError) as raised:
        store.ping()
    assert raised.value.kind in ("unavailable", "timeout") and raised.value.is_transient
    with pytest.raises(StoreError):
        store.set_override("/x", 1, 2, max_requests=5)
    with pytest.raises(StoreError):
        Limiter(store, Rule("r", "1/s")).settle("id", 1)


def test_a_server_that_does_not_answer_costs_the_deadline_and_then_nothing(own_server: RedisServer) -> None:
    deadline = 0.1
    store = Store.redis(own_server.url, deadline=deadline, breaker_consecutive=3)
    limiter = Limiter(store, Rule("r", "100/1h"))
    wait_for(lambda: limiter.check("a").origin == "store")
    own_server.pause()
    start = time.monotonic()
    for _ in range(3):
        assert limiter.check("a").origin == "outage"
    assert time.monotonic() - start >= 0.3
    wait_for(lambda: limiter.check("a").allowed and store.health.breaker != "closed")
    start = time.monotonic()
    for _ in range(200):
        assert limiter.check("a").allowed
    assert time.monotonic() - start < 200 * deadline / 2, "the breaker refuses at once"
    own_server.resume()
    wait_for(lambda: limiter.check("a").origin == "store")
    assert store.health.breaker == "closed" and store.health.breaker_opened >= 1


def test_a_server_that_comes_back_is_found_while_nobody_asks(own_server: RedisServer) -> None:
    store = Store.redis(own_server.url, deadline=DEADLINE)
    limiter = Limiter(store, Rule("r", "100/1h"))
    assert limiter.check("a").origin == "store"
    own_server.kill()
    wait_for(lambda: limiter.check("a").origin == "outage" and store.health.breaker != "closed")
    own_server.restart()
    # Only looked at, never asked: a thread of its own has to find it.
    wait_for(lambda: store.health.breaker == "closed")
    assert limiter.check("a").origin == "store"


async def test_outages_are_decisions_in_a_loop_too(own_server: RedisServer) -> None:
    store = Store.redis(own_server.url, deadline=DEADLINE)
    limiter = Limiter(store, Rule("r", "100/1h", on_outage="deny"))
    await store.aping()
    assert (await limiter.acheck("a")).origin == "store"
    own_server.kill()
    decision = await limiter.acheck("a")
    assert decision.origin == "outage" and not decision.allowed
    own_server.restart()


def test_something_else_at_a_key_is_an_outage_of_that_key(own_server: RedisServer) -> None:
    import redis

    store = Store.redis(own_server.url, deadline=DEADLINE)
    limiter = Limiter(store, Rule("r", "100/1h", on_outage="deny"))
    with redis.Redis(port=own_server.port) as client:
        client.hset("rk:c:r:a", "x", "y")
    assert limiter.check("a").origin == "outage"
    assert limiter.check("b").origin == "store"
