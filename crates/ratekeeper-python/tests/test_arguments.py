"""What is wrong with an argument is told, in words, and nothing panics."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from ratekeeper import (
    Charge, Decision, HttpOptions, Limiter, ManualClock, Policies, Quota, Request, Rule, Store, StoreError, Verdict,
)

WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: Quota("fast"), "quota"),
    (lambda: Quota("1000000001/s"), "limit: got 1000000001; expected a whole number from 0"),
    (lambda: Quota("0/s burst 3"), "burst: got 3 on a limit of 0"),
    (lambda: Quota("5/s burst 3 burst 4"), "each word once, and one algorithm at most"),
    (lambda: Quota.fixed_window(0, 1), "^max_requests must be at least 1$"),
    (lambda: Quota.fixed_window(-5), "^max_requests must be at least 1$"),
    (lambda: Quota.fixed_window(1, 0), "^expiry must be at least 1 second$"),
    (lambda: Quota.fixed_window(1, float("nan")), "^expiry must be at least 1 second$"),
    (lambda: Quota.fixed_window(1, 1e300), "expiry: got"),
    (lambda: Quota.fixed_window(10**10), "max_requests: got 10000000000; expected at most 1000000000"),
    (lambda: Rule("", "1/s"), "rule ``: name: got"),
    (lambda: Rule("r", ""), "quota"),
    (lambda: Rule("r", {}), "quotas: got none; expected at least one"),
    (lambda: Rule("r", {"rpx": 5}), "expected rps, rpm, rph or rpd"),
    (lambda: Rule("r", {"rps": -1}), "rps: got -1; expected a whole number from 0 to 1000000000"),
    (lambda: Rule("r", "1/s", mode="loud"), 'mode: got "loud"; expected "on" or "monitor"'),  # type: ignore[arg-type]
    (lambda: Rule("r", "1/s", on_outage="x"), 'on_outage: got "x"; expected "allow" or "local" or "deny"'),  # type: ignore[arg-type]
    (lambda: Rule("r", "1/s", everyone=True, key=str), "expected one of the two"),
    (lambda: Limiter(None, [Rule("r", "1/s"), Rule("r", "2/s")]), "rule `r`: name: got a second quota named r"),
    (lambda: Limiter(None, Rule("r", "1/s"), instances=0), "instances: got 0; expected a whole number of at least 1"),
    (lambda: Limiter(None, Rule("r", "1/s")).check(""), "key: got"),
    (lambda: Limiter(None, Rule("r", "1/s")).check("x" * 2000), "key: got"),
    (lambda: Limiter(None, Rule("r", "1/s")).check("a", cost=-1), "cost: got -1; expected 0 or more"),
    (lambda: Limiter(None, Rule("r", "1/s")).check("a", mode="?"), 'mode: got "\\?"; expected "on"'),  # type: ignore[arg-type]
    (lambda: Limiter(None, Rule("r", "1/s")).check("a", project=1), "organisation: got none; expected one"),
    (lambda: Limiter(None, Rule("r", "1/s")).reserve("a", 0, "id", 1), "cost: got an estimate of 0"),
    (lambda: Limiter(None, Rule("r", "1/s")).until_allowed("a", -1), "patience: got -1; expected seconds, 0 or more"),
    (lambda: Store.memory(max_keys=0), "max_keys: got 0; expected a whole number from 1"),
    (lambda: Store.redis("http://x"), "store: got"),
    (lambda: Store.redis("http://user:geheim@x"), "store: got"),
    (lambda: Store.open("nothing"), "store: got"),
    (lambda: Store.redis("redis://127.0.0.1", deadline=0), "got a deadline of 0ns; expected a deadline from 1 ms to 60 s$"),
    (lambda: Store.redis("redis://127.0.0.1", deadline=0.1, total=0.05), "a total of 50ms with a deadline of 100ms; expected a total from the deadline to 240 s$"),
    (lambda: Store.redis("redis://127.0.0.1", password_file="/there/is/no/such"), "no/such.*; expected a password that can be read"),
    (lambda: Store.redis("redis://127.0.0.1", connections=0), "got 0 connections; expected 1 to 64 connections$"),
    (lambda: Store.redis("redis://127.0.0.1", connections=65), "got 65 connections; expected 1 to 64 connections$"),
    (lambda: Store.redis("redis://127.0.0.1", prefix="a b"), 'got prefix .*a b.*; expected a prefix of at most 128'),
    (lambda: Store.redis("redis://127.0.0.1", certificate_authority="x"), "rediss:// or valkeys://, and certificates in PEM form"),
    (lambda: Store.memory().check([]), "check: got no charge"),
    (lambda: Store.memory().settle("id", -1), "actual: got -1; expected a whole number from 0 to 1000000000"),
    (lambda: Store.memory().set_switch(enforce_percent=101), "enforce_percent: got 101; expected 0 to 100"),
    (lambda: Store.memory().set_switch("ü"), "switch: got"),
    (lambda: Store.memory().set_override("/x", 1, 2, max_requests=-1), "^max_requests must be at least 0$"),
    (lambda: Store.memory().set_override("/x", 1, 2, max_requests=1, expiry=0), "^expiry must be at least 1 second$"),
    (lambda: Store.memory().set_override("/x", 1, max_requests=1, ttl=0), "^override_ttl must be at least 1 second$"),
    (lambda: Store.memory().get_override("", 1, 2), "override: got endpoint of 0 bytes"),
    (lambda: Charge("c", "1/s", "k", project=1), "overrides: expected endpoint and organisation"),
    (lambda: Charge("c", "1/s", ""), "key: got"),
    (lambda: HttpOptions(legacy="old"), 'legacy: got "old"; expected "RateLimit" or "X-RateLimit"'),  # type: ignore[arg-type]
    (lambda: HttpOptions(outage_retry_after=-1), "outage_retry_after: got -1"),
    (lambda: HttpOptions(retry_after_spread=101), "retry_after_spread: got 101; expected 0 to 100 percent"),
    (lambda: HttpOptions(retry_after_spread=-1), "retry_after_spread: got -1; expected 0 to 100 percent"),
    (lambda: Request(peer="nowhere"), 'peer: got "nowhere"; expected an IP address'),
    (lambda: ManualClock(-1), "seconds: got -1"),
    (lambda: Policies(mode="?"), 'mode: got "\\?"'),  # type: ignore[arg-type]
    (lambda: Policies(hash_secret=b""), "hash_secret: "),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_wrong_values_are_told(number: int) -> None:
    call, words = WRONG[number]
    with pytest.raises(ValueError, match=words) as raised:
        call()
    assert "geheim" not in str(raised.value), "a password"


TYPES: list[Callable[[], Any]] = [
    lambda: Rule("r", 5),  # type: ignore[arg-type]
    lambda: Rule("r", "1/s", key=5),  # type: ignore[arg-type]
    lambda: Limiter(None, 5),  # type: ignore[arg-type]
    lambda: Limiter(None, ["r"]),  # type: ignore[list-item]
    lambda: Limiter("memory", Rule("r", "1/s")),  # type: ignore[arg-type]
    lambda: Limiter(None, Rule("r", "1/s")).check(),
    lambda: Limiter(None, Rule("r", "1/s")).check("a", organisation=1.5),  # type: ignore[arg-type]
    lambda: Store.memory().check("x"),  # type: ignore[arg-type]
    lambda: Request(headers=[("a", 5)]),  # type: ignore[list-item]
    lambda: Request(identity={"org": []}),  # type: ignore[dict-item]
    lambda: Policies(key_functions={"r": 5}),  # type: ignore[dict-item]
    lambda: Decision(),
    lambda: Verdict(),
]


@pytest.mark.parametrize("number", range(len(TYPES)))
def test_wrong_types_are_told(number: int) -> None:
    with pytest.raises(TypeError):
        TYPES[number]()


def test_numbers_that_no_machine_has_are_told() -> None:
    limiter = Limiter(None, Rule("r", "1/s"))
    with pytest.raises(ValueError, match="^cost: got a number below"):
        limiter.check("a", cost=-(2**70))
    with pytest.raises(UnicodeEncodeError):
        limiter.check("\ud800")


def test_answers_are_frozen() -> None:
    decision = Limiter(None, Rule("r", "1/s")).check("a")
    for thing, name in [(decision, "allowed"), (decision.verdicts[0], "remaining"), (decision, "other")]:
        with pytest.raises(AttributeError):
            setattr(thing, name, 1)


def test_values_are_compared_by_what_they_say() -> None:
    assert Quota("60/60s") == Quota("60/min") and hash(Quota("60/60s")) == hash(Quota("60/min"))
    assert Quota("60/60s") != Quota("61/60s") and Quota("1/s") != "1/s"
    assert HttpOptions() == HttpOptions(standard="11") and len({HttpOptions(), HttpOptions()}) == 1
    assert repr(Quota("10/s burst 20")) == "Quota('10/s burst 20')"


def test_a_limit_of_0_lets_nothing_pass() -> None:
    for quotas in ("0/s", {"rps": 0}, Quota("0/min fixed_window")):
        decision = Limiter(None, Rule("r", quotas)).check("a")
        assert (decision.allowed, decision.retry_after) == (False, float("inf")), quotas
    store = Store.memory()
    store.set_override("/x", 1, 2, max_requests=0)
    charge = Charge("c", "5/min", "/x:1:2", endpoint="/x", organisation=1, project=2)
    assert not store.check(charge).allowed


def test_errors_have_a_family() -> None:
    from ratekeeper import PolicyError, RatekeeperError

    assert issubclass(StoreError, RatekeeperError) and not issubclass(StoreError, ValueError)
    assert issubclass(PolicyError, RatekeeperError) and issubclass(PolicyError, ValueError)


def test_nothing_keeps_what_a_decision_was_about() -> None:
    class Key(str):
        pass

    limiter = Limiter(None, Rule("r", "1/s", key=lambda request: str(request)))
    request = Key("a")
    gone = weakref.ref(request)
    decision = limiter.check(request)
    del request
    gc.collect()
    assert gone() is None and decision.allowed


def test_circles_of_limiters_and_key_functions_are_collected() -> None:
    class Owner:
        def __init__(self) -> None:
            self.limiter = Limiter(None, Rule("r", "1/s", key=self.key))
            self.request = Request(context=self)

        def key(self, request: Any) -> str:
            return str(request)

    owner = Owner()
    assert owner.limiter.check("a")
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


async def _key(_: object) -> str | None: ...


class _Keys:
    async def __call__(self, _: object) -> str | None: ...


@pytest.mark.parametrize("key", [_key, _Keys()])
def test_async_functions_are_refused_where_nobody_awaits_them(key: Any) -> None:
    with pytest.raises(TypeError, match="^key: expected a plain function, got one that is async"):
        Rule("r", "1/s", key=key)
    with pytest.raises(TypeError, match="^key_functions: expected a plain function, got one that is async"):
        Policies(key_functions={"r": key})
