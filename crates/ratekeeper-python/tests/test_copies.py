"""What can be copied, pickled and shown."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import ratekeeper
from ratekeeper import HttpOptions, Limiter, Quota, Rule, Store

QUOTAS = ["10/s burst 20", "100/60s fixed_window", "50000 per calendar month", "5/1m concurrency", "7/90s sliding_log"]
OPTIONS: list[dict[str, Any]] = [
    {}, {"standard": None, "legacy": "X-RateLimit", "legacy_reset": "epoch"},
    {"standard": "next", "body": "detail", "outage_retry_after": 2.5, "retry_after_spread": 10},
]


@pytest.mark.parametrize("value", [*map(Quota, QUOTAS), *(HttpOptions(**options) for options in OPTIONS)])
def test_values_can_be_copied_and_pickled(value: Any) -> None:
    for same in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert same == value and hash(same) == hash(value) and repr(same) == repr(value)


def test_decisions_can_be_copied_and_belong_to_their_process() -> None:
    limiter = Limiter(None, Rule("r", "1/m"))
    decision = limiter.check("a")
    for value in (decision, decision.verdicts[0]):
        assert copy.copy(value) is value and copy.deepcopy([value])[0] is value
        assert pickle.loads(pickle.dumps(value)) == value


def test_objects_say_what_they_are() -> None:
    limiter = Limiter(Store.memory(), [Rule("per-user", "10/s burst 20"), Rule("all", "5/m fixed_window", everyone=True)])
    assert repr(limiter) == "<Limiter in memory: per-user: 10/s burst 20; all: 5/min fixed_window>"
    shown = repr(HttpOptions(legacy="RateLimit"))
    assert shown == (
        "HttpOptions(standard='11', legacy='RateLimit', legacy_reset='delta', body='problem', "
        "outage_retry_after=1.0, retry_after_spread=0)"
    )
    assert eval(shown) == HttpOptions(legacy="RateLimit")


def test_a_star_hides_no_request_of_a_framework() -> None:
    assert "Request" not in ratekeeper.__all__ and ratekeeper.Request.__module__ == "ratekeeper"
