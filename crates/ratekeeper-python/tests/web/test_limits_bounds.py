"""The storage for `limits`, asked for more than can be counted."""

from __future__ import annotations

import pytest
from conftest import DEADLINE, Backend
from limits import RateLimitItemPerMinute
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES

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
