"""Limits that live outside the code: text, files, folders, MongoDB; key functions in Python."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any

import pymongo
import pytest
from conftest import Backend
from forks import ended_well, fork
from servers import MongoServer, wait_for

from ratekeeper import Policies, PolicyError, PolicyLimiter, Request, mode_from_environment

SEARCH = """
service = "search"
[[rules]]
name = "per-user"
keys = "user:{identity.user}"
quota = "2/60s fixed_window"
[[rules]]
name = "writes"
when = "method == 'POST'"
keys = "all"
quota = "5/60s fixed_window"
"""
SDK = """
_id = "sentiment"
[general_rate_limit]
rps = 20
rpm = 30
[custom_rate_limits."user:1234"]
rpm = 5
"""


def caller(quota: str, service: str = "s") -> str:
    return f'service = "{service}"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "{quota}"\n'


def test_rules_apply_to_requests(backend: Backend) -> None:
    policies = Policies()
    assert policies.install(SEARCH) == "search"
    search = PolicyLimiter(backend.store(), policies).service("search")
    ann = Request("GET", "/items?page=2", identity={"user": "ann"})
    assert search.check(ann) and search.check(ann)
    denied = search.check(ann)
    assert not denied and [verdict.policy for verdict in denied.verdicts] == ["per-user"]
    assert denied.verdicts[0].name == "search/per-user"
    post = Request("POST", "/items", identity={"user": "bob"})
    assert [verdict.policy for verdict in search.check(post).verdicts] == ["per-user", "writes"]
    assert search.needs.identity and not search.needs.body and search.needs_of(ann).identity
    search.refund(search.check(post))
    assert search.peek(post).verdicts[1].remaining == 4
    assert search.reset(ann) == 1 and search.check(ann)


async def test_the_calls_of_a_service_are_awaited_too(backend: Backend) -> None:
    policies = Policies()
    policies.install(caller("9/60s fixed_window"))
    service = PolicyLimiter(backend.store(), policies).service("s")
    decision = await service.acheck(key="k", cost=2)
    await service.arefund(decision, 1)
    assert (await service.apeek(key="k")).verdicts[0].remaining == 8
    assert (await service.areserve(None, 3, "id", 60, key="k")).allowed
    assert await service.asettle("id", 4) == "done"
    assert (await service.auntil_allowed(key="k", patience=1)).verdicts[0].remaining == 3
    assert service.reserve(None, 3, "id2", 60, key="k").allowed and service.cancel("id2") == "done"
    assert service.settle("none", 1) == "unknown" and await service.acancel("none") == "unknown"
    assert await service.areset(key="k") == 1
    with pytest.raises(ValueError, match="request: got none, and no key; expected one of them"):
        await service.acheck()


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_places_are_held_and_released(backend: Backend, form: str) -> None:
    policies = Policies()
    policies.install(caller("2/60s concurrency"))
    service = PolicyLimiter(backend.store(), policies).service("s")
    held = [service.check(key="k"), await service.acheck(key="k")]
    assert all(decision.holds for decision in held)
    assert not service.check(key="k")
    if form == "sync":
        service.release(held[0])
    else:
        await service.arelease(held[0])
    assert service.check(key="k").allowed and not service.check(key="k")


async def test_check_service_and_key_as_in_the_sdk(backend: Backend) -> None:
    policies = Policies()
    policies.install(SDK)
    limiter = PolicyLimiter(backend.store(), policies)
    assert [verdict.limit for verdict in limiter.check("sentiment", "tenant:x").verdicts] == [20, 30]
    assert [verdict.limit for verdict in (await limiter.acheck("sentiment", "user:1234")).verdicts] == [5]
    assert [limiter.check("sentiment", "user:1234").allowed for _ in range(5)] == [True] * 4 + [False]
    assert limiter.check("unheard-of", "k").origin == "unlimited"
    assert (await limiter.acheck("unheard-of", "k")).origin == "unlimited"


async def test_key_functions_in_python(backend: Backend) -> None:
    def key_of(request: Any) -> str | None:
        if request == "raise":
            raise LookupError("no tenant")
        found: str | None = request if isinstance(request, str) else request.header("X-Tenant")
        return found

    policies = Policies(key_functions={"r": key_of})
    policies.install(caller("2/60s fixed_window"))
    service = PolicyLimiter(backend.store(), policies).service("s")
    assert service.check(Request(headers=[("x-tenant", "t")])) and await service.acheck(Request(context="t"))
    assert not service.check(Request(headers=[(b"X-Tenant", b"t")]))
    assert service.check(Request()).origin == "unlimited", "no key, no limit"
    assert service.check(Request(context="t"), key="other").verdicts[0].remaining in (0, 1)
    with pytest.raises(LookupError, match="no tenant"):
        service.check(Request(context="raise"))
    with pytest.raises(LookupError, match="no tenant"):
        await service.acheck(Request(context="raise"))


def test_everything_wrong_with_a_policy_is_told() -> None:
    policies = Policies()
    policies.install(caller("5/s"))
    with pytest.raises(PolicyError) as raised:
        policies.install(caller("fast").replace("name", "nmae"), source="limits.toml")
    assert "limits.toml:" in str(raised.value) and len(str(raised.value).splitlines()) >= 2
    assert PolicyLimiter(None, policies).check("s", "k").verdicts[0].limit == 5
    (status,) = policies.status()
    assert status["service"] == "s" and status["in_force"]
    assert [rule["name"] for rule in status["rules"]] == ["r"]


@pytest.mark.parametrize("format", ["toml", "yaml", "json"])
def test_formats(format: Any) -> None:
    document = {
        "toml": caller("5/s"),
        "yaml": "service: s\nrules:\n- name: r\n  caller_key: true\n  quota: 5/s\n",
        "json": '{"service": "s", "rules": [{"name": "r", "caller_key": true, "quota": "5/s"}]}',
    }[format]
    policies = Policies()
    assert policies.install(document.encode(), format) == "s"
    assert [(name, str(quota)) for name, quota in policies.endpoint_limits("s", "GET", "/x")] == [("r", "5/s")]
    assert policies.endpoint_limits("none", "GET", "/x") == []


def test_a_file_that_changes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(caller("5/s"))
    policies = Policies()
    watch = policies.watch_file(path, debounce=0.01, poll=0.05)
    limit = lambda: PolicyLimiter(None, policies).check("s", "k").verdicts[0].limit  # noqa: E731
    assert limit() == 5
    path.write_text(caller("7/s"))
    wait_for(lambda: limit() == 7)
    path.write_text(caller("wrong"))
    wait_for(lambda: policies.status()[0]["last_refusal"])
    with pytest.raises(PolicyError, match="policy.toml"):
        watch.refresh()
    assert limit() == 7
    watch.stop()
    with pytest.raises(PolicyError, match="the watch has ended"):
        watch.refresh()


async def test_a_folder_with_a_file_for_each_service(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.toml").write_text(caller("5/s", "a"))
    policies = Policies()
    watch = policies.watch_file(str(tmp_path), debounce=0.01, poll=0.05)
    limiter = PolicyLimiter(None, policies)
    (tmp_path / "b.toml").write_text(caller("6/s", "b"))
    await watch.arefresh()
    assert [limiter.check(service, "k").verdicts[0].limit for service in "ab"] == [5, 6]
    with pytest.raises(PolicyError, match="none.toml"):
        policies.watch_file(tmp_path / "none.toml")


def document(rpm: int, at: int) -> dict[str, Any]:
    when = datetime.datetime.fromtimestamp(1_760_000_000 + at, datetime.timezone.utc)
    return {"_id": "svc", "last_updated": when, "general_rate_limit": {"rpm": rpm}}


@pytest.mark.parametrize("form", ["sync", "async"])
async def test_documents_in_mongodb(mongodb: MongoServer, form: str) -> None:
    with pymongo.MongoClient[dict[str, Any]](mongodb.url) as client:
        documents = client[f"limits_{form}"]["policies"]
        documents.insert_one(document(5, 0))
        policies = Policies()
        options: dict[str, Any] = {"database": f"limits_{form}", "interval": 1}
        if form == "sync":
            watch = policies.watch_mongodb(mongodb.url, **options)
        else:
            watch = await policies.awatch_mongodb(mongodb.url, **options)
        limiter = PolicyLimiter(None, policies)
        assert limiter.check("svc", "k").verdicts[0].limit == 5
        documents.replace_one({"_id": "svc"}, document(6, 1))
        if form == "sync":
            watch.refresh()
        else:
            await watch.arefresh()
        assert limiter.check("svc", "k").verdicts[0].limit == 6
        documents.replace_one({"_id": "svc"}, document(7, 2))
        wait_for(lambda: limiter.check("svc", "k").verdicts[0].limit == 7)
        watch.stop()


def test_a_child_follows_mongodb(mongodb: MongoServer) -> None:
    with pymongo.MongoClient[dict[str, Any]](mongodb.url) as client:
        documents = client["limits_fork"]["policies"]
        documents.insert_one(document(5, 0))
        policies = Policies()
        watch = policies.watch_mongodb(mongodb.url, database="limits_fork", interval=1)
        limiter = PolicyLimiter(None, policies)

        def child() -> bool:
            return limiter.check("svc", "k").verdicts[0].limit == 5 and wait_for(
                lambda: limiter.check("svc", "k").verdicts[0].limit == 8
            )

        pid = fork(child)
        documents.replace_one({"_id": "svc"}, document(8, 1))
        assert ended_well(pid)
        watch.stop()


def test_mongodb_that_cannot_be_had() -> None:
    with pytest.raises(ValueError, match="url: got another text"):
        Policies().watch_mongodb("http://geheim@x")
    with pytest.raises(PolicyError, match="mongodb://127.0.0.1:1/"):
        Policies().watch_mongodb("mongodb://127.0.0.1:1", deadline=0.5)


def test_what_a_request_says() -> None:
    request = Request(
        "POST", "/a/b?x=1%202", route="/a/{id}", headers=[("X-A", "1"), (b"x-a", b"2")], body=b'{"n": [1, 2]}',
        peer="192.0.2.1", identity={"org": 7, "vip": True, "share": 0.5, "user": "ann", "none": None},  # type: ignore[dict-item]
    )
    assert (request.method, request.path, request.route, request.query("x")) == ("POST", "/a/b", "/a/{id}", "1 2")
    assert (request.header("x-A"), request.header("none")) == ("1", None)
    claims = [request.claim(name) for name in ("org", "vip", "share", "user", "none")]
    assert claims == [7, True, 0.5, "ann", None]
    assert request.json() == {"n": [1, 2]} and Request(body=b"{").json() is None and Request().json() is None


def test_claims_that_differ_are_keys_that_differ() -> None:
    """A float would make one of many large numbers."""
    policies = Policies()
    policies.install('service = "s"\n[[rules]]\nname = "r"\nkeys = "{identity.user}"\nquota = "1/1h"\n')
    limiter = PolicyLimiter(None, policies).service("s")
    for user in (2**64 + 1, 2**64 + 2, -(2**64) - 1, 2**64 - 1, 10**60, 10**60 + 1):
        assert limiter.check(Request(identity={"user": user})).allowed, user
    assert not limiter.check(Request(body=b"", identity={"user": str(2**64 + 1)})).allowed


def test_the_mode_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RATE_LIMIT_MODE", raising=False)
    assert mode_from_environment() is None
    monkeypatch.setenv("RATE_LIMIT_MODE", "Monitor")
    assert mode_from_environment() == "monitor"
    policies = Policies()
    policies.install(caller("1/1h"))
    limiter = PolicyLimiter(None, policies)
    assert limiter.check("s", "k") and limiter.check("s", "k").over_limit
    monkeypatch.setenv("RATE_LIMIT_MODE", "maybe")
    with pytest.raises(ValueError, match='RATE_LIMIT_MODE: got "maybe"; expected on, monitor or off'):
        mode_from_environment()
