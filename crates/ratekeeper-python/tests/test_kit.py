"""Counters and overrides in the formats of Application Kit, written and read by redis-py beside ours."""

from __future__ import annotations

from conftest import Backend

from ratekeeper import Limiter, Quota, Rule, keys, overrides

ENDPOINT = "/datasets/{dataset_id}/search"


def limiter_on(backend: Backend, max_requests: int = 5, expiry: int = 60) -> Limiter:
    return Limiter(backend.store(), Rule("requests", Quota.fixed_window(max_requests, expiry)))


def test_counters_are_plain_integers_with_a_life(remote: Backend) -> None:
    limiter = limiter_on(remote)
    with remote.client() as client:
        assert limiter.check_project(ENDPOINT, 1, 42, cost=2)
        key = f"ratelimit:{ENDPOINT}:1:42"
        assert client.keys() == [key]
        assert client.get(key) == "2" and 0 < client.ttl(key) <= 60
        assert client.incrby(key, 2) == 4
        assert limiter.check_project(ENDPOINT, 1, 42).verdicts[0].remaining == 0
        assert not limiter.check_project(ENDPOINT, 1, 42)
        assert client.get(key) == "5", "a denial charges nothing"


def test_a_counter_of_theirs_counts_for_us(remote: Backend) -> None:
    limiter = limiter_on(remote)
    with remote.client() as client:
        client.set(f"ratelimit:{ENDPOINT}:1:42", 4, ex=30)
        decision = limiter.check_project(ENDPOINT, 1, 42)
        assert decision.allowed and decision.verdicts[0].remaining == 0
        assert 29 <= decision.verdicts[0].reset_after <= 30
        denied = limiter.check_project(ENDPOINT, "1", "42")
        assert not denied and 29 <= denied.retry_after <= 30
        client.delete(f"ratelimit:{ENDPOINT}:1:42")
        assert limiter.check_project(ENDPOINT, 1, 42).verdicts[0].remaining == 4


def test_the_same_key_said_in_full(remote: Backend) -> None:
    limiter = limiter_on(remote)
    limiter.check_project(ENDPOINT, 1, 42)
    key = f"{ENDPOINT}:1:42"
    decision = limiter.check(key, organisation=1, project=42, endpoint=ENDPOINT)
    assert decision.verdicts[0].remaining == 3
    assert limiter.check(key).verdicts[0].remaining == 4, "without an owner it is a key like any other"
    assert limiter.reset(key, organisation=1, project=42, endpoint=ENDPOINT) == 1
    with remote.client() as client:
        assert client.exists(f"ratelimit:{key}") == 0


def test_endpoints_with_colons_and_suffixes(remote: Backend) -> None:
    limiter = limiter_on(remote)
    limiter.check_project("api:v1:matrix/elements", 1, 42, cost=3)
    with remote.client() as client:
        assert client.get("ratelimit:api:v1:matrix/elements:1:42") == "3"


def test_an_override_of_theirs_holds_for_us(remote: Backend) -> None:
    limiter = limiter_on(remote)
    with remote.client() as client:
        client.hset(f"ratelimit_org_override:{ENDPOINT}:1", mapping={"max_requests": "100", "expiry": "120"})
        verdict = limiter.check_project(ENDPOINT, 1, 42).verdicts[0]
        assert (verdict.limit, verdict.window, verdict.level) == (100, 120.0, "organisation")
        client.hset(f"ratelimit_override:{ENDPOINT}:1:42", mapping={"max_requests": "500", "expiry": "60"})
        client.expire(f"ratelimit_override:{ENDPOINT}:1:42", 100)
        verdict = limiter.check_project(ENDPOINT, 1, 42).verdicts[0]
        assert (verdict.limit, verdict.level) == (500, "project")
        assert limiter.check_project(ENDPOINT, 1, 43).verdicts[0].limit == 100
    found = limiter.store.get_override(ENDPOINT, 1, 42)
    assert found is not None and (found.max_requests, found.expiry) == (500, 60)
    assert found.expires_at is not None and 95 < found.expires_at - limiter.store.now <= 101


async def test_an_override_of_ours_reads_as_theirs(remote: Backend) -> None:
    store = remote.store()
    await overrides.set_rate_limit_override(store, 1, 42, ENDPOINT, 500, 120, override_ttl=86400)
    await overrides.set_org_rate_limit_override(
        store, organization_id=1, endpoint_pattern=ENDPOINT, max_requests=50, expiry=60
    )
    with remote.client() as client:
        key = f"ratelimit_override:{ENDPOINT}:1:42"
        assert {name: client.hget(key, name) for name in ("max_requests", "expiry")} == {
            "max_requests": "500", "expiry": "120",
        }
        assert 86000 < client.ttl(key) <= 86400
        key = f"ratelimit_org_override:{ENDPOINT}:1"
        assert (client.hget(key, "max_requests"), client.hget(key, "expiry"), client.ttl(key)) == ("50", "60", -1)


async def test_overrides_under_the_names_of_application_kit(backend: Backend) -> None:
    store = backend.store()
    project, organisation = (1, 2), (1,)
    for endpoint, limit in [("/b", 20), ("/a", 10)]:
        await overrides.set_rate_limit_override(store, *project, endpoint, limit, 60)
        await overrides.set_org_rate_limit_override(store, *organisation, endpoint, limit + 1, 60)
    found = await overrides.get_rate_limit_override(store, *project, "/a")
    assert found == overrides.RateLimitOverride(max_requests=10, expiry=60)
    assert await overrides.get_rate_limit_override(store, 1, 3, "/a") is None
    of_org = await overrides.get_org_rate_limit_override(store, *organisation, "/a")
    assert of_org is not None and of_org.max_requests == 11
    listed = await overrides.list_rate_limit_overrides(store, *project)
    assert [(endpoint, override.max_requests) for endpoint, override in listed] == [("/a", 10), ("/b", 20)]
    listed = await overrides.list_org_rate_limit_overrides(store, *organisation)
    assert [(endpoint, override.max_requests) for endpoint, override in listed] == [("/a", 11), ("/b", 21)]
    assert await overrides.delete_rate_limit_override(store, *project, "/a") is True
    assert await overrides.delete_rate_limit_override(store, *project, "/a") is False
    assert await overrides.delete_org_rate_limit_override(store, *organisation, "/none") is False
    assert await overrides.clear_project_rate_limit_overrides(store, *project) == 1
    assert await overrides.clear_org_rate_limit_overrides(store, *organisation) == 2
    assert store.list_overrides(1, 2) == [] and store.clear_overrides(1) == 0


def test_nobody_is_called_like_two_others_together(backend: Backend) -> None:
    store = backend.store()
    limiter = Limiter(store, Rule("requests", Quota.fixed_window(1, 60)))
    callers: list[tuple[str, int | str, int | str]] = [
        ("/e", "a:b", "c"), ("/e", "a", "b:c"), ("/e:a", "b", "c"), ("/e", "a%3Ab", "c"), ("/e:1", 2, 3), ("/e", "1:2", 3),
    ]
    assert all(limiter.check_project(*caller) for caller in callers)
    assert not any(limiter.check_project(*caller) for caller in callers)
    for number, caller in enumerate(callers, 1):
        store.set_override(*caller, max_requests=number)
    found = [store.get_override(*caller) for caller in callers]
    assert [override and override.max_requests for override in found] == [1, 2, 3, 4, 5, 6]
    names = {keys.make_rate_limit_key(*caller) for caller in callers}
    assert len(names) == len(callers)
    for caller in callers:
        scope = keys.parse_override_key(keys.make_override_key(*caller))
        assert scope == caller


def test_ids_may_be_large_numbers(backend: Backend) -> None:
    store = backend.store()
    limiter = Limiter(store, Rule("requests", Quota.fixed_window(1, 60)))
    assert limiter.check_project("/e", 1, 2**80) and not limiter.check_project("/e", 1, str(2**80))
