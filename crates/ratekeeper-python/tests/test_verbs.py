"""Every verb of everything that can be asked: with a cost and an id, plain and awaited, on every store."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Backend
from servers import RedisServer, wait_for

from ratekeeper import (
    Charge, HttpOptions, Limiter, ManualClock, Policies, PolicyLimiter, Quota, Rule, Store, StoreError, Tally,
)

QUOTA = "10/60s fixed_window"
POLICY = f'service = "s"\n[[rules]]\nname = "r"\ncaller_key = true\nquota = "{QUOTA}"\n'


def policies() -> Policies:
    found = Policies()
    found.install(POLICY)
    return found


@dataclasses.dataclass
class Asked:
    """Something that can be asked, and how it is asked for the key "ann"."""

    target: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    is_async: bool

    async def __call__(self, verb: str, *more: Any, **options: Any) -> Any:
        arguments = (*self.arguments, *more)
        if not self.is_async:
            return getattr(self.target, verb)(*arguments, **self.keywords, **options)
        return await getattr(self.target, f"a{verb}")(*arguments, **self.keywords, **options)


MAKERS: dict[str, Callable[[Store], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "Limiter": lambda store: (Limiter(store, Rule("r", QUOTA)), ("ann",), {}),
    "ServiceLimiter": lambda store: (PolicyLimiter(store, policies()).service("s"), (None,), {"key": "ann"}),
    "Store": lambda store: (store, (Charge("r", QUOTA, "ann"),), {}),
}


@pytest.fixture(params=[(name, way) for name in MAKERS for way in ("plain", "awaited")], ids="-".join)
def surface(request: pytest.FixtureRequest) -> Callable[[Store], Asked]:
    """Everything that can be asked, in both forms."""
    name, way = request.param
    return lambda store: Asked(*MAKERS[name](store), way == "awaited")


async def test_every_verb_takes_a_cost(surface: Callable[[Store], Asked], store: Store) -> None:
    ask = surface(store)
    assert (await ask("check", cost=4)).verdicts[0].remaining == 6
    assert (await ask("peek", cost=6)).allowed and not (await ask("peek", cost=7)).allowed
    assert (await ask("explain", cost=6)).splitlines()[1] == "- r: 6 of 10 left, 10/min fixed_window (set by: default)"
    assert (await ask("explain", cost=7)).startswith("denied by r: 6 of 10 left (10/min fixed_window), 7 asked for")
    impatient = await ask("until_allowed", 0, cost=7)
    assert not impatient and impatient.verdicts[0].cost == 7
    assert (await ask("until_allowed", 5, cost=6)).verdicts[0].remaining == 0
    assert not await ask("check")


async def test_every_verb_takes_an_id(surface: Callable[[Store], Asked], store: Store) -> None:
    ask = surface(store)
    first = await ask("check", cost=4, id="order-17")
    again = await ask("check", cost=4, id="order-17")
    assert (first.origin, again.origin) == ("store", "repeat")
    assert [decision.verdicts[0].remaining for decision in (first, again)] == [6, 6]
    assert (await ask("peek", cost=4, id="order-17")).origin == "repeat"
    assert (await ask("explain", cost=4, id="order-17")).startswith("repeated, charged once: allowed: r has 6 of 10")
    assert (await ask("until_allowed", 5, cost=4, id="order-17")).origin == "repeat"
    assert (await ask("until_allowed", 5, cost=1, id="order-18")).verdicts[0].remaining == 5
    assert (await ask("check", cost=1, id="order-18")).origin == "repeat", "a wait is charged under its id, too"
    assert (await ask("peek")).verdicts[0].remaining == 5
    with pytest.raises(ValueError, match="a new id for each check"):
        await ask("check", cost=5, id="order-17")
    for wrong in ("", "x" * 2_000):
        with pytest.raises(ValueError, match="^idempotency: got an id of"):
            await ask("check", id=wrong)
    with pytest.raises(ValueError, match="^keep: got -1; expected seconds, 0 or more$"):
        await ask("peek", id="order-19", keep=-1)


async def test_an_id_is_remembered_as_long_as_is_said(
    surface: Callable[[Store], Asked], backend: Backend, clock: ManualClock
) -> None:
    ask = surface(backend.store(clock=clock))
    for seconds, origin in ((0, "store"), (4.9, "repeat"), (0.2, "store")):
        clock.advance(seconds)
        assert (await ask("check", id="order-17", keep=5)).origin == origin
    clock.advance(599)
    assert (await ask("check", id="order-18")).origin == "store"
    clock.advance(599)
    assert (await ask("check", id="order-18")).origin == "repeat", "ten minutes, if nothing is said"


@pytest.mark.parametrize("name", MAKERS)
def test_what_takes_no_io_takes_a_cost_and_an_id(name: str, backend: Backend) -> None:
    target, arguments, keywords = MAKERS[name](backend.store())
    found = [target.try_check(*arguments, **keywords, cost=4, id="order-17") for _ in range(2)]
    if backend.server is None:
        assert [decision.origin for decision in found] == ["store", "repeat"]
        assert found[1].verdicts[0].remaining == 6
    else:
        assert found == [None, None]
        assert target.peek(*arguments, **keywords).verdicts[0].remaining == 10, "nothing has happened"


async def test_shorter_calls_take_an_id_too(store: Store) -> None:
    limiter = Limiter(store, Rule("r", QUOTA))
    assert limiter.check_project("/x", 1, 2, cost=4, id="a").origin == "store"
    assert (await limiter.acheck_project("/x", 1, 2, cost=4, id="a")).origin == "repeat"
    service = PolicyLimiter(store, policies())
    assert service.check("s", "ann", cost=4, id="b").origin == "store"
    assert (await service.acheck("s", "ann", cost=4, id="b")).origin == "repeat"
    assert service.check("unknown", "ann", id="b").origin == "unlimited"
    assert store.check(Charge("c", QUOTA, "ann"), id="c", keep=60).origin == "store"
    assert store.once(Charge("c", QUOTA, "ann"), "c", 60).origin == "repeat"


def test_a_cost_for_charges_is_that_of_all_that_are_not_flat(store: Store) -> None:
    charges = [Charge("calls", QUOTA, "ann", flat=True), Charge("tokens", QUOTA, "ann", cost=2)]
    assert [verdict.remaining for verdict in store.check(charges).verdicts] == [9, 8]
    assert [verdict.remaining for verdict in store.check(charges, cost=5).verdicts] == [8, 3]
    assert store.reserve([*charges, Charge("look", QUOTA, "ann", cost=0)], "id", 60).allowed


def test_what_was_decided_under_an_id_can_be_given_back(store: Store) -> None:
    charge = Charge("r", QUOTA, "ann")
    decision = store.check(charge, cost=4, id="order-17")
    store.refund(decision, 1)
    assert store.peek(charge).verdicts[0].remaining == 7
    store.refund(store.check(charge, cost=3))
    assert store.peek(charge).verdicts[0].remaining == 7
    assert store.reset(charge) and not store.reset(charge)


def test_names_of_charges_are_made_up_as_often_as_one_likes() -> None:
    store, quota = Store.memory(), Quota(QUOTA)
    for number in range(100_001):
        store.peek(Charge(f"name {number}", quota, "ann"))
    (verdict,) = store.check(Charge("name 100001", quota, "ann")).verdicts
    assert (verdict.name, verdict.policy) == ("name 100001", "name 100001")
    assert Limiter(store, Rule("another", QUOTA)).check("ann"), "there is room for names of rules"


def test_names_of_charges_are_told(store: Store) -> None:
    charges = [Charge("search/calls", "1/60s fixed_window", "ann"), Charge('"tokens"', "1/60s fixed_window", "ann")]
    allowed = store.check(charges)
    assert allowed.explain().startswith("allowed: search/calls has 0 of 1 left")
    fields = dict(allowed.headers())
    assert fields["ratelimit-policy"] == '"search/calls";q=1;w=60, "\\"tokens\\"";q=1;w=60'
    assert fields["ratelimit"].startswith('"search/calls";r=0;t=')
    denied = store.check([*charges, Charge("wide", "9/60s fixed_window", "ann")])
    assert [verdict.name for verdict in denied.verdicts] == ["search/calls", '"tokens"', "wide"]
    assert repr(denied.verdicts[2]) == "<Verdict wide: 9 of 9 left, 9/min fixed_window>"
    assert denied.strictest is not None and denied.strictest.name in ("search/calls", '"tokens"')
    assert repr(denied).startswith(f"<Decision: denied by {denied.strictest.name}: 0 of 1 left")
    assert dict(denied.headers())["ratelimit"].endswith('"wide";r=9;t=0')
    denial = denied.denial(HttpOptions(body="problem"))
    assert denial is not None
    body = json.loads(denial.body)
    assert body["violated-policies"] == ["search/calls", '"tokens"']
    assert body["detail"].startswith(f"The policy '{denied.strictest.name}' has no room")
    tally = Tally()
    tally.add(denied)
    tally.add(Limiter(store, Rule("r", QUOTA)).check("ann"), partition="p")
    names = [part.strip().split(";")[0] for part in dict(tally.headers())["ratelimit"].split(",")]
    assert names == ['"search/calls"', '"\\"tokens\\""', '"wide"', '"r"']
    lines = store.explain(charges).splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == ["- search/calls", '- "tokens"']


def test_counters_of_charges_are_those_of_rules_with_their_name(store: Store) -> None:
    assert Limiter(store, Rule("r", QUOTA)).check("ann", cost=4)
    assert store.peek(Charge("r", QUOTA, "ann")).verdicts[0].remaining == 6


async def test_an_outage_is_an_error_to_whoever_puts_charges_together(own_server: RedisServer) -> None:
    store, charge = Store.redis(own_server.url, deadline=5), Charge("r", QUOTA, "ann")
    decision = store.check(charge)
    own_server.kill()
    calls: list[Callable[[], Any]] = [
        lambda: store.check(charge),
        lambda: store.check(charge, id="id"),
        lambda: store.peek(charge),
        lambda: store.explain(charge),
        lambda: store.until_allowed(charge, 1),
        lambda: store.until_allowed(charge, 1, id="id"),
        lambda: store.once(charge, "id"),
        lambda: store.reserve(charge, "id", 60),
        lambda: store.settle("id", 1),
        lambda: store.refund(decision),
        lambda: store.reset(charge),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(StoreError):
            pytest.fail(f"call {number} was answered: {call()}")
    for awaited in (store.acheck, store.apeek, store.aexplain, store.auntil_allowed):
        with pytest.raises(StoreError):
            await awaited(charge)
    own_server.restart()
    wait_for(lambda: store.health.breaker == "closed")


def test_a_new_key_is_no_outage_of_a_full_memory() -> None:
    store = Store.memory(max_keys=256)
    for number in range(5_000):
        assert store.check(Charge("r", "1/1d fixed_window", f"user:{number}"))
    assert store.health.evicted == store.health.evicted_exhausted == 5_000 - 256
    assert (store.health.full, store.health.is_full) == (0, False)


def test_made_up_charges_push_out_no_counter_of_a_rule() -> None:
    """All charges of a `Store` are one rule, whatever their names, which holds most of the memory and so loses."""
    store = Store.memory(max_keys=2_560)
    limiter = Limiter(store, Rule("per-user", "100/1h fixed_window"))
    for user in range(100):
        assert limiter.check(f"user:{user}", cost=99)
    for number in range(25_000):
        assert store.check(Charge(f"name-{number}", "1/1h fixed_window", f"key-{number}"))
    assert store.health.evicted > 20_000
    left = [limiter.peek(f"user:{user}").verdicts[0].remaining for user in range(100)]
    assert left == [1] * 100


def test_charges_that_no_memory_holds_together_are_an_error_to_whoever_puts_them_together() -> None:
    store, kinds = Store.memory(max_keys=1), set()
    for number in range(100):
        charges = [Charge("r", "1/1d fixed_window", f"user:{number}:{part}") for part in range(64)]
        try:
            store.check(charges)
        except StoreError as error:
            kinds.add(error.kind)
    assert kinds == {"capacity"}


def test_a_decision_gives_back_no_more_than_it_charged() -> None:
    store = Store.memory()
    decision = store.check(Charge("r", "10/1h", "user", cost=5))
    assert [store.refund(decision, 3), store.refund(decision, 3), store.refund(decision)] == [3, 2, 0]
    assert store.peek(Charge("r", "10/1h", "user")).verdicts[0].remaining == 10
