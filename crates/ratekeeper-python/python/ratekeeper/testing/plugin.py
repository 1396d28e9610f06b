"""Fixtures for pytest: `pytest_plugins = ["ratekeeper.testing.plugin"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import RateLimits

__all__ = ["rate_limits", "rate_limits_of_session"]


@pytest.fixture(scope="session")
def rate_limits_of_session() -> RateLimits:
    """The one store of all tests, for applications that are made once."""
    return RateLimits()


@pytest.fixture
def rate_limits(rate_limits_of_session: RateLimits) -> Iterator[RateLimits]:
    """A store that has counted nothing, with a clock that stands still."""
    rate_limits_of_session.reset()
    yield rate_limits_of_session
