"""Other limits for projects and organisations, and what operators switch."""

from __future__ import annotations

from conftest import Backend
from servers import wait_for

from ratekeeper import Limiter, ManualClock, Rule


def test_the_project_comes_before_the_organisation(backend: Backend) -> None:
    store = backend.store()
    limiter = Limiter(store, Rule("api", "5/60s"))
    level = lambda project: limiter.peek("k", organisation="acme", project=project).verdicts[0]  # noqa: E731
    store.set_override("api", "acme", max_requests=10, reason="trial", author="ops")
    store.set_override("api", "acme", "web", max_requests=20, expiry=30)
    assert (level("web").limit, level("web").window, level("web").level) == (20, 30.0, "project")
    assert (level("app").limit, level("app").window, level("app").level) == (10, 60.0, "organisation")
    assert limiter.peek("k").verdicts[0].level == "default"
    found = store.get_override("api", "acme")
    assert found is not None and (found.reason, found.author, found.expiry) == ("trial", "ops", None)
    assert store.delete_override("api", "acme", "web") is True
    assert level("web").level == "organisation"


def test_of_several_quotas_one_is_named(backend: Backend) -> None:
    store = backend.store()
    limiter = Limiter(store, Rule("api", "{rps=5, rpm=50}"))
    store.set_override("api.rpm", "acme", max_requests=70)
    assert [verdict.limit for verdict in limiter.peek("k", organisation="acme").verdicts] == [5, 70]
    store.set_override("/search.rps", "acme", max_requests=9)
    decision = limiter.peek("k", organisation="acme", endpoint="/search")
    assert [verdict.limit for verdict in decision.verdicts] == [9, 50]


def test_an_override_ends_by_itself(backend: Backend, clock: ManualClock) -> None:
    store = backend.store(clock=clock)
    limiter = Limiter(store, Rule("api", "5/60s"))
    store.set_override("api", 1, 2, max_requests=10, ttl=30)
    limit = lambda: limiter.peek("k", organisation=1, project=2).verdicts[0].limit  # noqa: E731
    assert limit() == 10
    clock.advance(29.9)
    assert limit() == 10
    clock.advance(0.1)
    assert limit() == 5 and store.get_override("api", 1, 2) is None


def test_modes_are_switched_live_and_for_a_while(backend: Backend, clock: ManualClock) -> None:
    store = backend.store(clock=clock)
    limiter = Limiter(store, [Rule("a", "1/1h"), Rule("b", "100/1h")])
    assert limiter.check("k")
    assert not limiter.check("k")
    store.set_switch("a", mode="monitor", seconds=60)
    decision = limiter.check("k")
    assert decision.allowed and decision.over_limit
    assert [verdict.enforced for verdict in decision.verdicts] == [False, True]
    clock.advance(60)
    assert not limiter.check("k")
    store.set_switch(mode="off")
    assert limiter.check("k").origin == "unlimited"
    assert store.switches()["*"].mode == "off" and store.switches()["a"].until == 1_700_000_060.0
    assert store.clear_switch() is True and store.clear_switch() is False
    assert not limiter.check("k")


def test_a_share_of_the_keys(backend: Backend) -> None:
    store = backend.store()
    limiter = Limiter(store, Rule("a", "1/1h"))
    keys = [f"key-{number}" for number in range(400)]
    enforced = lambda: {key for key in keys if limiter.peek(key).verdicts[0].enforced}  # noqa: E731
    store.set_switch("a", enforce_percent=10)
    ten = enforced()
    assert 10 < len(ten) < 90
    store.set_switch("a", enforce_percent=50)
    assert ten < enforced() and 120 < len(enforced()) < 280


def test_an_emergency(backend: Backend) -> None:
    store = backend.store()
    limiter = Limiter(store, Rule("a", "5/1h"))
    store.set_switch("*", emergency="block")
    blocked = limiter.check("k")
    assert not blocked and blocked.verdicts[0].level == "emergency"
    store.set_switch("*", emergency="lift")
    assert all(limiter.check("k") for _ in range(10))
    store.clear_switch()
    assert limiter.check("k").verdicts[0].remaining == 4


def test_every_process_obeys_a_switch(remote: Backend) -> None:
    here, there = remote.store(), remote.store()
    limiter = Limiter(there, Rule("a", "1/1h"))
    here.set_switch("a", mode="off")
    wait_for(lambda: limiter.check("k").origin == "unlimited")


async def test_switches_are_awaited_too(backend: Backend) -> None:
    store = backend.store()
    await store.aset_switch("a", mode="monitor", enforce_percent=5, emergency="lift")
    switch = store.switches()["a"]
    assert (switch.mode, switch.enforce_percent, switch.emergency, switch.until) == ("monitor", 5, "lift", None)
    assert repr(switch) == "<Switch: mode=monitor enforce=5 emergency=lift>"
    assert await store.aclear_switch("a") is True
