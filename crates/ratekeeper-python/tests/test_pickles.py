"""Decisions and exceptions that are copied, pickled and compared."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from servers import nobody

from ratekeeper import Charge, Decision, Limiter, Policies, PolicyError, PolicyLimiter, Request, Rule, Store, StoreError

POLICY = """
service = "search"
[[rules]]
name = "per-user"
keys = "user:{identity.user}"
rpm = 1
[[rules]]
name = "all"
keys = "all"
quota = "5/s"
"""


def decisions() -> list[Decision]:
    store = Store.memory()
    limiter = Limiter(store, [Rule("per-user", {"rpm": 1, "rpd": 9}), Rule("watched", "1/s", mode="monitor")])
    policies = Policies()
    policies.install(POLICY)
    service = PolicyLimiter(store, policies).service("search")
    asked = Request(identity={"user": "ann"})
    found = [call() for call in (lambda: limiter.check("ann"), lambda: service.check(asked)) for _ in range(2)]
    charges = [Charge("called anything", "2/min", "k", cost=2), Charge("b", "1/min sliding_log", "k")]
    return [*found, store.check(charges), store.check(charges), Limiter(store, []).check("nobody")]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_says_the_same(protocol: int) -> None:
    for decision in decisions():
        again: Decision = pickle.loads(pickle.dumps(decision, protocol))
        assert again == decision and hash(again) == hash(decision) and repr(again) == repr(decision)
        assert again.headers() == decision.headers() and again.explain() == decision.explain()
        assert again.denial() == decision.denial() and again.at == decision.at
        assert [v.name for v in again.verdicts] == [v.name for v in decision.verdicts]
        for verdict, other in zip(again.verdicts, decision.verdicts, strict=True):
            assert verdict == other and pickle.loads(pickle.dumps(other, protocol)) == other
            assert (verdict.policy, verdict.level, verdict.enforced) == (other.policy, other.level, other.enforced)
        assert pickle.loads(pickle.dumps(again, protocol)) == decision
        denial = decision.denial()
        assert pickle.loads(pickle.dumps(denial, protocol)) == denial


def test_decisions_that_differ_are_not_equal() -> None:
    found = decisions()
    assert len(set(found)) == len(found) and found[0] != "a text" and found[0].verdicts[0] != 1


def test_copies_share_what_was_given_back() -> None:
    limiter = Limiter(None, Rule("r", "5/min fixed_window"))
    decision = limiter.check("ann", cost=2)
    assert limiter.refund(copy.deepcopy(decision), 1) == 1
    assert limiter.refund(copy.copy(decision)) == 1 and limiter.refund(decision) == 0


def test_a_pickle_has_nothing_to_give_back() -> None:
    limiter = Limiter(None, Rule("r", "5/min fixed_window"))
    again = pickle.loads(pickle.dumps(limiter.check("ann", cost=2)))
    assert again.allowed and not again.holds and not again.verdicts[0].charged
    with pytest.raises(ValueError, match="decision: got one of another limiter"):
        limiter.refund(again)


def test_exceptions_are_pickled_whole() -> None:
    errors: list[Any] = []
    with nobody() as port, pytest.raises(StoreError) as caught:
        Store.redis(f"redis://127.0.0.1:{port}").ping()
    errors.append(caught.value)
    with pytest.raises(PolicyError) as wrong:
        Policies().install("service = 7")
    errors.append(wrong.value)
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
        assert str(copy.copy(error)) == str(error)
