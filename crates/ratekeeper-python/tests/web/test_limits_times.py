"""When an exhausted limit of `limits` says that it has room again."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from conftest import DEADLINE, Backend
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES

import ratekeeper.limits_storage  # noqa: F401 (registers the storages)
from ratekeeper import ManualClock

HISTORIES = 120
# Half of what a clock of Python's floats can tell apart, many times over.
A_LITTLE = 0.000_05


def limiter_of(backend: Backend, strategy: str, clock: ManualClock) -> Any:
    uri, options = "ratekeeper+memory://", {}
    if backend.server is not None:
        uri, options = f"ratekeeper+{backend.server.url}", {"deadline": DEADLINE}
    return STRATEGIES[strategy](storage_from_string(uri, clock=clock, **options))


def exhaust(limiter: Any, item: RateLimitItem, who: str, clock: ManualClock, rng: random.Random) -> None:
    """Hits at random times, until a hit of one is denied."""
    while limiter.hit(item, who, cost=rng.randint(1, max(1, item.amount // 3))) or limiter.hit(item, who):
        clock.advance(rng.choice([0, 0.001, rng.uniform(0, item.get_expiry() / item.amount)]))


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_reset_time_is_when_the_same_hit_passes(backend: Backend, strategy: str, clock: ManualClock) -> None:
    rng = random.Random(strategy)
    limiter, told_late, told_early = limiter_of(backend, strategy, clock), 0, 0
    for number in range(HISTORIES):
        item = RateLimitItemPerSecond(rng.randint(1, 40), multiples=rng.choice([1, 2, 7, 60, 3_600]))
        who = f"user-{number}"
        exhaust(limiter, item, who, clock, rng)
        # Once more in a later window, where what was counted before fades.
        clock.advance(rng.uniform(0, 1.5) * item.get_expiry())
        exhaust(limiter, item, who, clock, rng)
        before = time.time()
        stats = limiter.get_window_stats(item, who)
        after = time.time()
        assert stats.remaining == 0
        # The instant is by the clock of this process, which went on while the other one stood still.
        clock.advance(max(0, stats.reset_time - after - A_LITTLE))
        told_late += limiter.test(item, who) or strategy != "fixed-window" and limiter.hit(item, who)
        clock.advance(A_LITTLE + after - before)
        told_early += not limiter.hit(item, who)
    assert (told_late, told_early) == (0, 0)
