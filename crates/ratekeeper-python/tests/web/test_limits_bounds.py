"""The storage for `limits`, asked for more than can be counted."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import DEADLINE, Backend
from limits import RateLimitItemPerMinute
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
from limits.aio.strategies import STRATEGIES as ASYNC_STRATEGIES

import ratekeeper.limits_storage  # noqa: F401 (registers the storages)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_costs_of_any_size_are_denied_as_by_its_own_storages(backend: Backend, strategy: str) -> None:
    if backend.server is None:
        ours = storage_from_string("ratekeeper+memory://")
    else:
        ours = storage_from_string(f"ratekeeper+{backend.server.url}", deadline=DEADLINE)
    item = RateLimitItemPerMinute(5)
    for cost in (6, 10**9, 2 * 10**9, 2**70):
        for storage in (ours, storage_from_string("memory://")):
            # Each its own key: some count what they deny.
            assert not STRATEGIES[strategy](storage).hit(item, f"k{cost}", cost=cost), cost
    assert STRATEGIES[strategy](ours).hit(item, "k", cost=5)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_costs_that_are_floats(backend: Backend, strategy: str) -> None:
    uri = "ratekeeper+memory://" if backend.server is None else f"ratekeeper+{backend.server.url}"
    options = {} if backend.server is None else {"deadline": DEADLINE}
    limiter: Any = STRATEGIES[strategy](storage_from_string(uri, **options))
    item = RateLimitItemPerMinute(5)
    assert [limiter.hit(item, "ann", cost=cost) for cost in (2.0, 3.0, 1.0)] == [True, True, False]
    for cost in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^amount: got {cost}; expected a number$"):
            limiter.hit(item, "bob", cost=cost)
    with pytest.raises(TypeError, match="^amount: expected a number, got str$"):
        limiter.hit(item, "bob", cost="2")
    assert limiter.get_window_stats(item, "bob").remaining == 5, "what is no cost is not counted"
    assert limiter.hit(item, "bob", cost=1.5)
    assert limiter.get_window_stats(item, "bob").remaining == 3, "a part counts as a whole one"


@pytest.mark.parametrize("strategy", sorted(ASYNC_STRATEGIES))
async def test_costs_that_are_floats_for_asyncio(backend: Backend, strategy: str) -> None:
    uri = "async+ratekeeper+memory://" if backend.server is None else f"async+ratekeeper+{backend.server.url}"
    options = {} if backend.server is None else {"deadline": DEADLINE}
    limiter: Any = ASYNC_STRATEGIES[strategy](storage_from_string(uri, **options))
    item = RateLimitItemPerMinute(5)
    assert [await limiter.hit(item, "ann", cost=cost) for cost in (2.0, 3.0, 1.0)] == [True, True, False]
    for cost in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"^amount: got {cost}; expected a number$"):
            await limiter.hit(item, "bob", cost=cost)
    with pytest.raises(TypeError, match="^amount: expected a number, got str$"):
        await limiter.hit(item, "bob", cost="2")
    assert (await limiter.get_window_stats(item, "bob")).remaining == 5, "what is no cost is not counted"
